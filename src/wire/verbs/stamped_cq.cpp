// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/verbs/stamped_cq.hpp"

#include <cerrno>
#include <cstring>

#include "wire/verbs/library.hpp"

namespace tutti::wire::verbs {

Result<StampedCq> StampedCq::open(Context* context, const Options& options) {
  TUTTI_ASSIGN_OR_RETURN(NicClock clock, NicClock::open(context, options.clock));
  const auto create = function_of(context, &ExtendedContext::create_cq);
  ExtendedCqInitial initial{};
  initial.entries = static_cast<std::uint32_t>(options.entries);
  initial.channel = options.channel;
  initial.vector = static_cast<std::uint32_t>(options.vector);
  initial.tells = kTellsBytes | kTellsImmediate | kTellsQpNumber | kTellsTime;
  errno = EOPNOTSUPP;
  ExtendedCq* const cq = create == nullptr ? nullptr : create(context, &initial);
  if (cq == nullptr) {
    return Status(ErrorCode::kUnavailable,
                  std::string("ibv_create_cq_ex: ") + std::strerror(errno));
  }
  return StampedCq(cq, std::move(clock), options.clock);
}

std::size_t StampedCq::poll(std::span<Completion> done, transport::TimeNs* received_ns) {
  std::uint32_t attributes = 0;  // ibv_poll_cq_attr
  if (cq_->start_poll(cq_, &attributes) != 0) {
    return 0;
  }
  std::size_t count = 0;
  do {
    Completion& it = done[count];
    it.id = cq_->id;
    it.status = cq_->status;
    it.qp_number = cq_->qp_number(cq_);
    received_ns[count] = transport::kNever;
    if (it.status == kSuccess) {
      it.opcode = cq_->opcode(cq_);
      it.flags = cq_->flags(cq_);
      it.bytes = cq_->bytes(cq_);
      it.immediate = (it.flags & kWithImmediate) == 0 ? 0 : cq_->immediate(cq_);
      received_ns[count] = cq_->time(cq_);
    }
  } while (++count < done.size() && cq_->next_poll(cq_) == 0);
  cq_->end_poll(cq_);
  if (failure_.empty()) {
    const Status status = clock_.refresh(host_clock_());
    failure_ = status.ok() ? "" : status.message();
  }
  for (std::size_t i = 0; i < count; ++i) {
    received_ns[i] = done[i].status == kSuccess && failure_.empty()
                         ? clock_.received_ns(received_ns[i])
                         : transport::kNever;
  }
  return count;
}

}  // namespace tutti::wire::verbs
