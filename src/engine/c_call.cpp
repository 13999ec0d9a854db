// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "engine/c_call.hpp"

#include <numeric>
#include <span>
#include <string>

namespace tutti::engine {

using runners::Call;
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
    TUTTI_RETURN_IF_ERROR(read_buffers());
    if (call_.in_place) {
      out_.is_send_empty = out_.is_recv_empty = false;
    }
    return {};
  }

 private:
  Status read_buffers() {
    switch (a_.collective) {
      case Collective::kBarrier:
        out_.bytes = 0;
        return {};
      case Collective::kBcast:
        call_.recv = a_.recv;
        out_.bytes = call_.count;
        return need(a_.recv, call_.count, "buffer");
      case Collective::kAllreduce:
      case Collective::kReduce:
      case Collective::kReduceScatter:
      case Collective::kReduceScatterBlock:
        return read_reduction();
      case Collective::kAlltoall:
      case Collective::kAlltoallv:
        return read_alltoall();
      case Collective::kScatter:
      case Collective::kScatterv:
        return read_scatter();
      default:
        return read_gather();
    }
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
    if (op < TUTTI_SUM || op > TUTTI_MAXLOC) {
      return bad("operation " + std::to_string(op) + " is none of tutti_op_t");
    }
    call_.type = data_type;
    call_.op = static_cast<ReduceOp>(op);
    call_.element_bytes = size_;
    call_.count = static_cast<std::uint64_t>(a_.count);
    if (!select::is_defined(call_.op, call_.type)) {
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
  Status need(const void* buffer, std::uint64_t elements, const char* name) const {
    if (buffer == TUTTI_IN_PLACE) {
      return bad(std::string(name) + " cannot be TUTTI_IN_PLACE on this rank");
    }
    return buffer == nullptr && elements > 0
               ? bad(std::string(name) + " is null, and " + std::to_string(elements) +
                     (select::is_reduction(a_.collective) ? " elements" : " bytes") +
                     " belong there")
               : Status();
  }

  /// One count and offset for each rank, in the call's units (bytes, or elements of reductions).
  Status read_counts(const std::int64_t* counts, const std::int64_t* displs, const char* name,
                     std::vector<std::uint64_t>* out_counts,
                     std::vector<std::uint64_t>* out_offsets, std::uint64_t* total) {
    if (counts == nullptr) {
      return bad(std::string(name) + " is null");
    }
    const std::uint64_t unit = select::is_reduction(a_.collective) ? 1 : size_;
    *total = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      TUTTI_RETURN_IF_ERROR(check_count(counts[rank], name));
      const auto count = static_cast<std::uint64_t>(counts[rank]) * unit;
      out_counts->push_back(count);
      // Displacements may be negative; they wrap, and wrap back when added to the address.
      out_offsets->push_back(displs == nullptr ? *total
                                               : static_cast<std::uint64_t>(displs[rank]) * unit);
      *total += count;
    }
    return {};
  }

  Status read_reduction() {
    std::uint64_t input = call_.count;
    std::uint64_t result = call_.count;
    if (a_.collective == Collective::kReduceScatterBlock) {
      input *= static_cast<std::uint64_t>(ranks_);
    } else if (a_.collective == Collective::kReduceScatter) {
      std::vector<std::uint64_t> offsets;
      TUTTI_RETURN_IF_ERROR(
          read_counts(a_.recv_counts, nullptr, "recv_counts", &out_.recv_counts, &offsets, &input));
      call_.recv_counts = out_.recv_counts;
      result = out_.recv_counts[self_];
    }
    out_.bytes = input * size_;
    out_.is_send_empty = input == 0;
    out_.is_recv_empty = result == 0;
    if (is_root_) {
      TUTTI_RETURN_IF_ERROR(need(a_.recv, result, "recv"));
      call_.recv = a_.recv;
    }
    if (a_.send == TUTTI_IN_PLACE && is_root_) {
      call_.in_place = true;
      call_.send = call_.recv;
      return need(a_.recv, input, "recv");
    }
    call_.send = a_.send;
    return need(a_.send, input, "send");
  }

  Status read_alltoall() {
    const bool in_place = a_.send == TUTTI_IN_PLACE;
    std::uint64_t sent = call_.count * static_cast<std::uint64_t>(ranks_);
    std::uint64_t received = sent;
    if (a_.collective == Collective::kAlltoallv) {
      TUTTI_RETURN_IF_ERROR(read_counts(a_.recv_counts, a_.recv_displs, "recv_counts",
                                        &out_.recv_counts, &out_.recv_offsets, &received));
      if (in_place) {
        out_.send_counts = out_.recv_counts;
        out_.send_offsets = out_.recv_offsets;
        sent = received;
      } else {
        TUTTI_RETURN_IF_ERROR(read_counts(a_.send_counts, a_.send_displs, "send_counts",
                                          &out_.send_counts, &out_.send_offsets, &sent));
      }
      if (out_.send_counts[self_] != out_.recv_counts[self_]) {
        return bad("send_counts and recv_counts differ in this rank's own entry");
      }
      use_send_counts();
      use_recv_counts();
    } else {
      out_.bytes = received;
    }
    call_.recv = a_.recv;
    call_.send = in_place ? a_.recv : a_.send;
    call_.in_place = in_place;
    out_.is_send_empty = sent == 0;
    out_.is_recv_empty = received == 0;
    TUTTI_RETURN_IF_ERROR(need(a_.recv, received, "recv"));
    return in_place ? Status() : need(a_.send, sent, "send");
  }

  /// gather(v) and allgather(v): the rank's own block is `count`.
  Status read_gather() {
    const bool is_all =
        a_.collective == Collective::kAllgather || a_.collective == Collective::kAllgatherv;
    const bool in_place = a_.send == TUTTI_IN_PLACE && is_root_;
    std::uint64_t received = call_.count * static_cast<std::uint64_t>(ranks_);
    std::uint64_t own_offset = call_.count * self_;
    if (!runners::has_counts(a_.collective)) {
      out_.bytes = received;
    } else if (is_root_) {
      TUTTI_RETURN_IF_ERROR(read_counts(a_.recv_counts, a_.recv_displs, "recv_counts",
                                        &out_.recv_counts, &out_.recv_offsets, &received));
      if (!in_place && out_.recv_counts[self_] != call_.count) {
        return bad("send_count is not this rank's entry of recv_counts");
      }
      use_recv_counts();
      call_.count = out_.recv_counts[self_];
      own_offset = out_.recv_offsets[self_];
      if (is_all) {
        out_.bytes = received;
      }
    }
    out_.is_send_empty = call_.count == 0;
    out_.is_recv_empty = !is_root_ || received == 0;
    if (is_root_) {
      TUTTI_RETURN_IF_ERROR(need(a_.recv, received, "recv"));
      call_.recv = a_.recv;
    }
    call_.in_place = in_place;
    if (in_place) {
      call_.send = runners::at(call_.recv, own_offset, 1);
      return {};
    }
    call_.send = a_.send;
    return need(a_.send, call_.count, "send");
  }

  /// scatter(v): the rank's own block is `count`.
  Status read_scatter() {
    const bool in_place = a_.recv == TUTTI_IN_PLACE && is_root_;
    std::uint64_t sent = call_.count * static_cast<std::uint64_t>(ranks_);
    std::uint64_t own_offset = call_.count * self_;
    if (a_.collective == Collective::kScatter) {
      out_.bytes = sent;
    } else if (is_root_) {
      TUTTI_RETURN_IF_ERROR(read_counts(a_.send_counts, a_.send_displs, "send_counts",
                                        &out_.send_counts, &out_.send_offsets, &sent));
      if (!in_place && out_.send_counts[self_] != call_.count) {
        return bad("recv_count is not this rank's entry of send_counts");
      }
      use_send_counts();
      call_.count = out_.send_counts[self_];
      own_offset = out_.send_offsets[self_];
    }
    out_.is_send_empty = !is_root_ || sent == 0;
    out_.is_recv_empty = call_.count == 0;
    if (is_root_) {
      TUTTI_RETURN_IF_ERROR(need(a_.send, sent, "send"));
      call_.send = a_.send;
    }
    call_.in_place = in_place;
    if (in_place) {
      call_.recv = const_cast<std::byte*>(runners::at(call_.send, own_offset, 1));
      return {};
    }
    call_.recv = a_.recv;
    return need(a_.recv, call_.count, "recv");
  }

  void use_send_counts() {
    call_.send_counts = out_.send_counts;
    call_.send_offsets = out_.send_offsets;
  }
  void use_recv_counts() {
    call_.recv_counts = out_.recv_counts;
    call_.recv_offsets = out_.recv_offsets;
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
