// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "simulation/check_delivery.hpp"

#include <algorithm>
#include <map>

namespace tutti::transport::simulation::check_delivery {
namespace {

bool is_unwritten(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte it) { return it == kUnwritten; });
}

struct Part {
  const PartRecord* record = nullptr;
  const ReceiveRecord* receive = nullptr;
};

/// The sends and receive parts of one tag, in the order of posting.
struct Flow {
  std::vector<const SendRecord*> sends;
  std::vector<Part> parts;
};

std::map<Tag, Flow> flows_of(const EndRecord& sender, const EndRecord& receiver) {
  std::map<Tag, Flow> flows;
  for (const SendRecord& send : sender.sends) {
    flows[send.tag].sends.push_back(&send);
  }
  for (const ReceiveRecord& receive : receiver.receives) {
    for (const PartRecord& part : receive.parts) {
      flows[part.tag].parts.push_back({&part, &receive});
    }
  }
  return flows;
}

// Walks both lists in order with all ways to pair them: a part that was received takes the next
// send that fits; one whose request failed may have taken one; a send that failed may be passed.
bool can_be_paired(const Flow& flow, bool sender_knows) {
  const std::size_t count = flow.sends.size();
  std::vector<char> reached(count + 1);
  reached[0] = 1;
  const auto pass = [&] {
    for (std::size_t i = 0; i < count; ++i) {
      const SendRecord& send = *flow.sends[i];
      const bool can_skip = !sender_knows || !send.is_done || send.outcome != Outcome::kOk;
      reached[i + 1] = static_cast<char>(reached[i + 1] | (reached[i] != 0 && can_skip ? 1 : 0));
    }
  };
  pass();
  for (const Part& part : flow.parts) {
    const bool is_received = part.receive->is_done && part.receive->outcome == Outcome::kOk;
    std::vector<char> next(count + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const SendRecord& send = *flow.sends[i];
      const bool fits = is_received ? send.data.size() == part.record->bytes &&
                                          send.digest == part.record->content_digest &&
                                          send.outcome != Outcome::kTruncated
                                    : true;
      next[i + 1] = static_cast<char>(reached[i] != 0 && fits ? 1 : 0);
    }
    for (std::size_t i = 0; i <= count && !is_received; ++i) {
      next[i] = static_cast<char>(next[i] | reached[i]);
    }
    reached = next;
    pass();
  }
  return reached[count] != 0;
}

// The model: the n-th send of a tag goes into the n-th part of that tag.
void compare_with_model(const ConnectionRecord& connection, int sender, Tag tag, const Flow& flow) {
  const std::string name = name_of(connection, sender) + " tag " + std::to_string(tag);
  if (flow.sends.size() != flow.parts.size()) {
    fail("differential", name + ": not everything was posted");
  }
  for (std::size_t i = 0; i < flow.sends.size(); ++i) {
    const SendRecord& send = *flow.sends[i];
    const Part& part = flow.parts[i];
    const bool is_short = part.record->capacity_bytes < send.data.size();
    const Outcome expected = is_short ? Outcome::kTruncated : Outcome::kOk;
    if (!send.is_done || !part.receive->is_done || send.outcome != expected ||
        (is_short && part.receive->outcome != expected)) {
      fail("differential", name + " message " + std::to_string(i) + ": sent " +
                               to_string(send.outcome) + ", received " +
                               to_string(part.receive->outcome) + ", expected " +
                               to_string(expected));
    }
    const Bytes bytes = is_short ? 0 : send.data.size();
    if (part.record->bytes != bytes || (!is_short && part.record->content_digest != send.digest)) {
      fail("differential", name + " message " + std::to_string(i) + ": " +
                               std::to_string(part.record->bytes) + " bytes, expected " +
                               std::to_string(bytes) + ", or their content differs");
    }
  }
}

}  // namespace

void on_send_done(const ConnectionRecord& connection, int end, const SendRecord& send) {
  // Shorter ones could lie somewhere by chance.
  if (send.outcome != Outcome::kOk || send.data.size() < 8) {
    return;
  }
  for (const ReceiveRecord& receive : connection.ends[1 - end].receives) {
    for (const PartRecord& part : receive.parts) {
      if (part.tag == send.tag && part.capacity_bytes >= send.data.size() &&
          std::memcmp(part.data(), send.data.data(), send.data.size()) == 0) {
        return;
      }
    }
  }
  fail("sent_before_received", name_of(connection, end) + ": a send of " +
                                   std::to_string(send.data.size()) + " bytes, tag " +
                                   std::to_string(send.tag) + ", ended before they arrived");
}

void on_receive_done(const ConnectionRecord& connection, int end, ReceiveRecord& receive) {
  for (PartRecord& part : receive.parts) {
    const std::string name = name_of(connection, end) + " tag " + std::to_string(part.tag);
    const bool is_whole = receive.outcome == Outcome::kOk;
    if (part.bytes > part.capacity_bytes) {
      fail("delivery", name + ": more bytes than fit");
    }
    const Bytes may_be_written = is_whole ? part.bytes : part.capacity_bytes;
    const std::byte* rest = part.data() + may_be_written;
    if (!is_unwritten(part.memory.data(), kGuardBytes) ||
        !is_unwritten(rest,
                      static_cast<std::size_t>(part.memory.data() + part.memory.size() - rest))) {
      fail("write_outside", name + ": bytes outside of the message were written");
    }
    if (receive.outcome == Outcome::kTruncated && receive.parts.size() == 1 &&
        !is_unwritten(part.data(), part.capacity_bytes)) {
      fail("write_outside", name + ": bytes of a message that does not fit were written");
    }
    part.content_digest = digest(part.data(), part.bytes);
    part.memory_digest = digest(part.memory.data(), part.memory.size());
  }
}

void at_end(const ConnectionRecord& connection) {
  for (int end = 0; end < 2; ++end) {
    const EndRecord& sender = connection.ends[end];
    const EndRecord& receiver = connection.ends[1 - end];
    for (const ReceiveRecord& receive : receiver.receives) {
      for (const PartRecord& part : receive.parts) {
        if (receive.is_done &&
            digest(part.memory.data(), part.memory.size()) != part.memory_digest) {
          fail("write_after_end",
               name_of(connection, 1 - end) + " tag " + std::to_string(part.tag) +
                   ": memory was written after the end of its receive was reported");
        }
      }
    }
    const bool is_ordinary = !connection.knobs.has_cancels() && !sender.has_crashed &&
                             !receiver.has_crashed && !connection.is_hopeless() &&
                             connection.knobs.abort_ns == kNever &&
                             connection.knobs.close_ns == kNever;
    for (const auto& [tag, flow] : flows_of(sender, receiver)) {
      if (is_ordinary) {
        compare_with_model(connection, end, tag, flow);
      } else if (!receiver.has_crashed && !can_be_paired(flow, !sender.has_crashed)) {
        fail("delivery", name_of(connection, end) + " tag " + std::to_string(tag) +
                             ": what was received is not what was sent, in order");
      }
    }
  }
}

}  // namespace tutti::transport::simulation::check_delivery
