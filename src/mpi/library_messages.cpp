// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI library's messages for schedules: posted, tested, and abandoned after a failure.
#include "mpi/library.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "mpi/unit_type.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

MPI_Request* Library::request(int slot, Bytes expected) {
  const auto needed = static_cast<std::size_t>(slot) + 1;
  if (requests_.size() < needed) {
    requests_.resize(needed, MPI_REQUEST_NULL);
    expected_.resize(needed);
    indices_.resize(needed);
    statuses_.resize(needed);
  }
  expected_[needed - 1] = expected;
  return &requests_[static_cast<std::size_t>(slot)];
}

/// As in the MPI libraries, what was sent for a call that its root has not made (it was refused) is
/// no other collective's.
int Library::tag_of(int tag) const {
  // Messages of one tag arrive in their order: a program may have more than there are tags.
  constexpr int kTagsAnywhere = 32768;  // MPI 4.1, 9.1.2: MPI_TAG_UB is at least 32767.
  constexpr int kEach = kTagsAnywhere / static_cast<int>(kCollectiveCount);
  return tag % kEach * static_cast<int>(kCollectiveCount) + static_cast<int>(collective_);
}

Status Library::isend(const void* data, Bytes bytes, int peer, int tag, int slot) {
  TUTTI_RETURN_IF_ERROR(usable());
  return with_bytes(bytes, [&](int count, MPI_Datatype type) {
    return check(pmpi.Isend(data, count, type, peer, tag_of(tag), own(), request(slot, kSent)),
                 "MPI_Isend");
  });
}

Status Library::irecv(void* data, Bytes bytes, int peer, int tag, int slot) {
  TUTTI_RETURN_IF_ERROR(usable());
  return with_bytes(bytes, [&](int count, MPI_Datatype type) {
    return check(pmpi.Irecv(data, count, type, peer, tag_of(tag), own(), request(slot, bytes)),
                 "MPI_Irecv");
  });
}

Status Library::test_some(int slots, std::vector<int>* completed) {
  return kTestsomeKnowsCommunicator ? test_together(slots, completed) : test_each(slots, completed);
}

Status Library::test_together(int slots, std::vector<int>* completed) {
  int many = 0;
  const int code = pmpi.Testsome(slots, requests_.data(), &many, indices_.data(), statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    // Only the statuses say what it was.
    for (int i = 0; i < many; ++i) {
      TUTTI_RETURN_IF_ERROR(check(statuses_[static_cast<std::size_t>(i)].MPI_ERROR, "a message"));
    }
  }
  TUTTI_RETURN_IF_ERROR(check(code, "MPI_Testsome"));
  if (many == MPI_UNDEFINED) {
    return {};
  }
  for (int i = 0; i < many; ++i) {
    const auto at = static_cast<std::size_t>(i);
    TUTTI_RETURN_IF_ERROR(
        check_length(statuses_[at], expected_[static_cast<std::size_t>(indices_[at])]));
  }
  completed->insert(completed->end(), indices_.begin(), indices_.begin() + many);
  return {};
}

Status Library::test_each(int slots, std::vector<int>* completed) {
  for (int slot = 0; slot < slots; ++slot) {
    MPI_Request& request = requests_[static_cast<std::size_t>(slot)];
    if (request == MPI_REQUEST_NULL) {
      continue;
    }
    int done = 0;
    MPI_Status status;
    TUTTI_RETURN_IF_ERROR(check(pmpi.Test(&request, &done, &status), "MPI_Test"));
    if (done != 0) {
      TUTTI_RETURN_IF_ERROR(check_length(status, expected_[static_cast<std::size_t>(slot)]));
      completed->push_back(slot);
    }
  }
  return {};
}

/// A receive is taken back, which needs no peer, unless it has met its message: then it ends with
/// it, for which a sender that lives needs a moment. No MPI takes a send back.
bool Library::abandon() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kCancelTimeout = std::chrono::seconds(1);
  for (std::size_t slot = 0; slot < requests_.size(); ++slot) {
    if (requests_[slot] != MPI_REQUEST_NULL && expected_[slot] != kSent) {
      static_cast<void>(pmpi.Cancel(&requests_[slot]));  // Whether it was is asked below.
    }
  }
  const auto start = Clock::now();
  for (;;) {
    bool receives = false;
    bool sends = false;
    for (std::size_t slot = 0; slot < requests_.size(); ++slot) {
      MPI_Request& request = requests_[slot];
      if (request == MPI_REQUEST_NULL) {
        continue;
      }
      // One that could not be cancelled or asked is under way until MPI says that it is not: an
      // error of the message itself says so, too, of which some keep the request.
      int done = 0;
      static_cast<void>(pmpi.Test(&request, &done, MPI_STATUS_IGNORE));
      if (done == 0 && request != MPI_REQUEST_NULL) {
        (expected_[slot] == kSent ? sends : receives) = true;
      }
    }
    if (!receives || Clock::now() - start > kCancelTimeout) {
      return !receives && !sends;
    }
    std::this_thread::yield();
  }
}

/// MPI calls a message that is too long an error, one that is too short a success: ranks that came
/// with other counts, or one that is in another call.
Status Library::check_length(const MPI_Status& status, Bytes expected) const {
  if (expected == kSent) {
    return {};
  }
  MPI_Count got = 0;
  TUTTI_RETURN_IF_ERROR(check(pmpi.Get_elements_x(&status, MPI_BYTE, &got), "MPI_Get_elements_x"));
  if (static_cast<Bytes>(got) == expected) {
    return {};
  }
  return Status(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(status.MPI_SOURCE) + " sent " + std::to_string(got) +
                    " bytes where " + std::to_string(expected) +
                    " belong: the ranks differ in their counts or in their calls");
}

}  // namespace tutti::mpi::TUTTI_FLAVOUR
