// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/c_call.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace tutti::engine {

using runners::Call;
using Form = runners::SideForm;
using select::Collective;
using select::DataType;
using select::ReduceOp;

// The enumerations of the C API are ours, number by number.
static_assert(TUTTI_BYTE == static_cast<int>(DataType::kByte));
static_assert(TUTTI_UINT64 == static_cast<int>(DataType::kUint64));
static_assert(TUTTI_FLOAT16 == static_cast<int>(DataType::kFloat16));
static_assert(TUTTI_FLOAT64 == static_cast<int>(DataType::kFloat64));
static_assert(TUTTI_COMPLEX128 == static_cast<int>(DataType::kComplex128));
static_assert(TUTTI_LOGICAL32 == static_cast<int>(DataType::kLogical32));
static_assert(TUTTI_INT16_INT == static_cast<int>(DataType::kInt16Int));
static_assert(TUTTI_FLOAT64_PAIR == static_cast<int>(DataType::kFloat64Pair));
static_assert(TUTTI_SUM == static_cast<int>(ReduceOp::kSum));
static_assert(TUTTI_MAX == static_cast<int>(ReduceOp::kMax));
static_assert(TUTTI_BXOR == static_cast<int>(ReduceOp::kBxor));
static_assert(TUTTI_MAXLOC == static_cast<int>(ReduceOp::kMaxloc));
static_assert(TUTTI_AVG == static_cast<int>(ReduceOp::kAvg));

namespace {

/// Of one rank's buffers, all ranks' parts together: sums and products stay far from 64 bits.
constexpr std::int64_t kBytesMax = std::int64_t{1} << 60;

/// Reads one call's arguments. Its functions return errors; the order of their calls is that of the
/// arguments' checks.
class Reader {
 public:
  Reader(const CArguments& arguments, int rank, int ranks, CCall* out)
      : a_(arguments),
        ranks_(ranks),
        self_(static_cast<std::size_t>(rank)),
        is_root_(!select::is_rooted(arguments.collective) || rank == arguments.root),
        out_(*out),
        call_(out->call) {}

  Status read() {
    TUTTI_RETURN_IF_ERROR(read_scalars());
    if (a_.collective == Collective::kBarrier) {
      out_.bytes = 0;
      return {};
    }
    const runners::SideForms forms = runners::forms_of(a_.collective, is_root_);
    Side send = side("send", forms.send, a_.send);
    Side recv = side(a_.collective == Collective::kBcast ? "buffer" : "recv", forms.recv, a_.recv);
    // One side may be in place; the other one holds everything then, and is checked first.
    const bool scatters = runners::may_be_in_place(a_.collective, /*sends=*/false, true);
    Side& whole = scatters ? send : recv;
    Side& own = scatters ? recv : send;
    own.in_place = own.buffer == TUTTI_IN_PLACE &&
                   runners::may_be_in_place(a_.collective, /*sends=*/!scatters, is_root_);
    if (a_.collective == Collective::kReduceScatter) {
      TUTTI_RETURN_IF_ERROR(read_counts(/*sends=*/false, &recv));
      send.elements = std::exchange(recv.elements, recv.counts[self_]);
      recv.offsets = {};
    } else {
      TUTTI_RETURN_IF_ERROR(read_blocks(/*sends=*/scatters, &whole));
      TUTTI_RETURN_IF_ERROR(read_blocks(/*sends=*/!scatters, &own));
      TUTTI_RETURN_IF_ERROR(check_own_block(scatters, whole, own));
    }
    runners::set_sides(send, recv, static_cast<int>(self_), &call_);
    if (select::has_size(a_.collective)) {
      // In place a rank's own count says nothing, and may differ between ranks.
      const bool is_ignored = send.in_place && !select::is_reduction(a_.collective);
      out_.bytes = call_.element_bytes *
                   (runners::has_counts(a_.collective)
                        ? std::max(is_ignored ? 0 : send.elements, recv.elements)
                        : call_.count * runners::block_count_max(a_.collective, ranks_));
    }
    out_.is_send_empty = send.elements == 0 && !call_.in_place;
    out_.is_recv_empty = recv.elements == 0 && !call_.in_place;
    TUTTI_RETURN_IF_ERROR(need(whole, whole.elements));
    if (own.in_place) {
      return select::is_reduction(a_.collective) ? need(whole, own.elements) : Status();
    }
    return need(own, own.elements);
  }

 private:
  struct Side : runners::CallSide {
    const char* name = nullptr;
    Form form = Form::kAbsent;
    std::uint64_t elements = 0;  ///< Of all its blocks.
  };

  Side side(const char* name, Form form, const void* buffer) const {
    Side side;
    side.name = name;
    side.form = form;
    side.count = call_.count;
    if (form != Form::kAbsent) {
      side.buffer = buffer;
      side.elements = call_.count * static_cast<std::uint64_t>(form == Form::kBlocks ? ranks_ : 1);
    }
    return side;
  }

  Status bad(const std::string& what) const {
    return Status(ErrorCode::kInvalidArgument,
                  std::string(select::to_string(a_.collective)) + ": " + what);
  }

  Status read_scalars() {
    call_.collective = a_.collective;
    if (a_.collective == Collective::kBarrier) {
      return {};
    }
    const auto type = static_cast<int>(a_.type);
    if (type < 0 || type >= static_cast<int>(DataType::kOther)) {
      return bad("type " + std::to_string(type) + " is none of tutti_type_t");
    }
    const auto data_type = static_cast<DataType>(type);
    size_ = select::size_of(data_type);
    if (select::is_rooted(a_.collective)) {
      if (a_.root < 0 || a_.root >= ranks_) {
        return bad("root " + std::to_string(a_.root) + " is none of the " + std::to_string(ranks_) +
                   " ranks, which count from 0");
      }
      call_.root = a_.root;
    }
    TUTTI_RETURN_IF_ERROR(check_count(a_.count, "count"));
    if (!select::is_reduction(a_.collective)) {
      call_.count = static_cast<std::uint64_t>(a_.count) * size_;  // Data movement is bytes.
      return {};
    }
    const auto op = static_cast<int>(a_.op);
    if (op < TUTTI_SUM || op > TUTTI_AVG) {
      return bad("operation " + std::to_string(op) + " is none of tutti_op_t");
    }
    call_.type = data_type;
    call_.op = static_cast<ReduceOp>(op);
    call_.element_bytes = size_;
    call_.count = static_cast<std::uint64_t>(a_.count);
    const bool is_average = call_.op == ReduceOp::kAvg && select::has_average(call_.type);
    if (!is_average && !select::is_defined(call_.op, call_.type)) {
      return bad(std::string("'") + select::to_string(call_.op) + "' is not defined for " +
                 select::to_string(call_.type));
    }
    return {};
  }

  Status check_count(std::int64_t count, const char* name) const {
    if (count < 0) {
      return bad(std::string(name) + " is negative: " + std::to_string(count));
    }
    return count > kBytesMax / static_cast<std::int64_t>(size_) / ranks_
               ? bad(std::string(name) + " " + std::to_string(count) +
                     " is more than any memory holds")
               : Status();
  }

  /// A buffer may be null when nothing is in it.
  Status need(const Side& side, std::uint64_t elements) const {
    if (side.buffer == TUTTI_IN_PLACE) {
      return bad(std::string(side.name) + " cannot be TUTTI_IN_PLACE on this rank");
    }
    return side.buffer == nullptr && elements > 0
               ? bad(std::string(side.name) + " is null, and " + std::to_string(elements) +
                     (select::is_reduction(a_.collective) ? " elements" : " bytes") +
                     " belong there")
               : Status();
  }

  Status read_blocks(bool sends, Side* side) {
    return side->form == Form::kCounts && !side->in_place ? read_counts(sends, side) : Status();
  }

  /// One count and offset for each rank, in the call's units (bytes, or elements of reductions).
  Status read_counts(bool sends, Side* side) {
    const std::int64_t* const counts = sends ? a_.send_counts : a_.recv_counts;
    const std::int64_t* const displs = sends ? a_.send_displs : a_.recv_displs;
    const char* const name = sends ? "send_counts" : "recv_counts";
    std::vector<std::uint64_t>& out_counts = sends ? out_.send_counts : out_.recv_counts;
    std::vector<std::uint64_t>& out_offsets = sends ? out_.send_offsets : out_.recv_offsets;
    if (counts == nullptr) {
      return bad(std::string(name) + " is null");
    }
    const std::uint64_t unit = select::is_reduction(a_.collective) ? 1 : size_;
    side->elements = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      TUTTI_RETURN_IF_ERROR(check_count(counts[rank], name));
      const auto count = static_cast<std::uint64_t>(counts[rank]) * unit;
      out_counts.push_back(count);
      // Displacements may be negative; they wrap, and wrap back when added to the address.
      out_offsets.push_back(displs == nullptr ? side->elements
                                              : static_cast<std::uint64_t>(displs[rank]) * unit);
      side->elements += count;
    }
    side->counts = out_counts;
    side->offsets = out_offsets;
    return {};
  }

  /// Of itself a rank sees both ends.
  Status check_own_block(bool scatters, const Side& whole, const Side& own) const {
    const bool has_two = own.form == Form::kCounts;
    if (whole.form != Form::kCounts || own.in_place ||
        whole.counts[self_] == (has_two ? own.counts[self_] : own.count)) {
      return {};
    }
    return bad(has_two    ? "send_counts and recv_counts differ in this rank's own entry"
               : scatters ? "recv_count is not this rank's entry of send_counts"
                          : "send_count is not this rank's entry of recv_counts");
  }

  const CArguments& a_;
  const int ranks_;
  const std::size_t self_;
  const bool is_root_;  ///< True where there is no root.
  CCall& out_;
  Call& call_;
  Bytes size_ = 1;
};

}  // namespace

Status make_call(const CArguments& arguments, int rank, int ranks, CCall* call) {
  return Reader(arguments, rank, ranks, call).read();
}

}  // namespace tutti::engine
