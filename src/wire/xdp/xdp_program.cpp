// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "wire/xdp/xdp_program.hpp"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "wire/xdp/netlink.hpp"

namespace tutti::wire::xdp {
namespace {

constexpr const char* kSocketsName = "tutti_sockets";
constexpr const char* kEndsName = "tutti_ends";
/// BPF_F_XDP_HAS_FRAGS (Linux 5.18), which older headers lack: on an interface whose frames are
/// longer than a page the kernel's own traffic needs a program that says so.
constexpr std::uint32_t kHasFrags = 1U << 5;
constexpr int kLinksMax = 4096;

// Of an Ethernet frame with IPv4 and UDP.
constexpr std::int16_t kTypeAt = 12;
constexpr std::int16_t kVersionAt = 14;
constexpr std::int16_t kFragmentAt = 20;
constexpr std::int16_t kProtocolAt = 23;
constexpr std::int16_t kTargetAddressAt = 30;
constexpr std::int16_t kTargetPortAt = 36;

/// What the map of ends holds; the program reads it.
struct EndValue {
  std::uint32_t address = 0;
  std::uint16_t port = 0;
  std::uint16_t unused = 0;
};

int bpf(bpf_cmd command, bpf_attr& attributes) {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

std::uint64_t pointer(const void* to) { return reinterpret_cast<std::uintptr_t>(to); }

int create_map(bpf_map_type type, std::uint32_t value_bytes, const char* name) {
  bpf_attr attributes{};
  attributes.map_type = type;
  attributes.key_size = sizeof(std::uint32_t);
  attributes.value_size = value_bytes;
  attributes.max_entries = kQueuesMax;
  std::strncpy(attributes.map_name, name, sizeof attributes.map_name - 1);
  return bpf(BPF_MAP_CREATE, attributes);
}

int set_element(int map, std::uint32_t key, const void* value) {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<std::uint32_t>(map);
  attributes.key = pointer(&key);
  attributes.value = pointer(value);
  attributes.flags = BPF_ANY;
  return bpf(BPF_MAP_UPDATE_ELEM, attributes);
}

/// False: there is no such element.
template <class Value>
bool get_element(int map, std::uint32_t key, Value* value) {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<std::uint32_t>(map);
  attributes.key = pointer(&key);
  attributes.value = pointer(value);
  return bpf(BPF_MAP_LOOKUP_ELEM, attributes) == 0;
}

void delete_element(int map, std::uint32_t key) {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<std::uint32_t>(map);
  attributes.key = pointer(&key);
  (void)bpf(BPF_MAP_DELETE_ELEM, attributes);
}

int load(std::span<const bpf_insn> program, std::uint32_t flags, std::span<char> log) {
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_XDP;
  attributes.expected_attach_type = BPF_XDP;
  attributes.insns = pointer(program.data());
  attributes.insn_cnt = static_cast<std::uint32_t>(program.size());
  attributes.license = pointer("Dual BSD/GPL");
  attributes.prog_flags = flags;
  std::strncpy(attributes.prog_name, kProgramName, sizeof attributes.prog_name - 1);
  if (!log.empty()) {
    attributes.log_level = 1;
    attributes.log_buf = pointer(log.data());
    attributes.log_size = static_cast<std::uint32_t>(log.size());
  }
  return bpf(BPF_PROG_LOAD, attributes);
}

int create_link(int program, int interface, std::uint32_t flags) {
  bpf_attr attributes{};
  attributes.link_create.prog_fd = static_cast<std::uint32_t>(program);
  attributes.link_create.target_ifindex = static_cast<std::uint32_t>(interface);
  attributes.link_create.attach_type = BPF_XDP;
  attributes.link_create.flags = flags;
  return bpf(BPF_LINK_CREATE, attributes);
}

/// A program, a map or a link by its number. Needs CAP_SYS_ADMIN.
int by_id(bpf_cmd command, std::uint32_t id) {
  bpf_attr attributes{};
  attributes.prog_id = id;  // All of them lie there.
  return bpf(command, attributes);
}

template <class Info>
bool get_info(int object, Info* info) {
  bpf_attr attributes{};
  attributes.info.bpf_fd = static_cast<std::uint32_t>(object);
  attributes.info.info_len = sizeof *info;
  attributes.info.info = pointer(info);
  return bpf(BPF_OBJ_GET_INFO_BY_FD, attributes) == 0;
}

/// The link by which a program is on its interface.
Descriptor link_of(std::uint32_t program) {
  bpf_attr attributes{};
  for (int i = 0; i < kLinksMax && bpf(BPF_LINK_GET_NEXT_ID, attributes) == 0; ++i) {
    const std::uint32_t id = attributes.next_id;
    Descriptor link(by_id(BPF_LINK_GET_FD_BY_ID, id));
    bpf_link_info info{};
    if (link.get() >= 0 && get_info(link.get(), &info) && info.type == BPF_LINK_TYPE_XDP &&
        info.prog_id == program) {
      return link;
    }
    attributes = {};
    attributes.start_id = id;
  }
  return Descriptor();
}

Status refused(const char* what, int error) {
  const bool may_not = error == EPERM || error == EACCES;
  return Status(
      ErrorCode::kUnsupported,
      std::string("xdp wire: ") + what + ": " + std::strerror(error) +
          (may_not ? "; it needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF outside of user "
                     "namespaces, or a running tutti-xdp-helper"
                   : ""));
}

/// Instructions one by one; jumps to the end are set when it is known.
class Assembler {
 public:
  void add(int code, int to, int from, int offset, std::int32_t value) {
    bpf_insn it{};
    it.code = static_cast<std::uint8_t>(code);
    it.dst_reg = static_cast<std::uint8_t>(to) & 0xf;
    it.src_reg = static_cast<std::uint8_t>(from) & 0xf;
    it.off = static_cast<std::int16_t>(offset);
    it.imm = value;
    program_.push_back(it);
  }
  void move(int to, int from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); }
  void set(int to, std::int32_t value) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
  void plus(int to, std::int32_t value) { add(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value); }
  /// `size`: BPF_B, BPF_H, BPF_W.
  void read(int size, int to, int from, int offset) {
    add(BPF_LDX | BPF_MEM | size, to, from, offset, 0);
  }
  void set_map(int to, int map) {
    add(BPF_LD | BPF_IMM | BPF_DW, to, BPF_PSEUDO_MAP_FD, 0, map);
    add(0, 0, 0, 0, 0);
  }
  void call(int function) { add(BPF_JMP | BPF_CALL, 0, 0, 0, function); }
  /// To the end. `test`: BPF_JNE, BPF_JGT, ...
  void pass_if(int test, int left, std::int32_t value) {
    passes_.push_back(program_.size());
    add(BPF_JMP | test | BPF_K, left, 0, 0, value);
  }
  void pass_if_registers(int test, int left, int right) {
    passes_.push_back(program_.size());
    add(BPF_JMP | test | BPF_X, left, right, 0, 0);
  }
  void leave() { add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

  /// With the end: to the kernel.
  std::vector<bpf_insn> finish() {
    for (const std::size_t at : passes_) {
      program_[at].off = static_cast<std::int16_t>(program_.size() - at - 1);
    }
    set(BPF_REG_0, XDP_PASS);
    leave();
    return std::move(program_);
  }

 private:
  std::vector<bpf_insn> program_;
  std::vector<std::size_t> passes_;
};

}  // namespace

const char* to_string(AttachMode mode) {
  switch (mode) {
    case AttachMode::kAny:
      return "any";
    case AttachMode::kNative:
      return "native";
    case AttachMode::kGeneric:
      return "generic";
  }
  return "?";
}

std::vector<bpf_insn> program_of(int sockets, int ends) {
  constexpr int kContext = BPF_REG_6;
  constexpr int kAddress = BPF_REG_7;
  constexpr int kPort = BPF_REG_8;
  constexpr int kQueue = BPF_REG_9;
  constexpr int kFrame = BPF_REG_2;
  constexpr int kScratch = BPF_REG_4;
  constexpr int kKeyAt = -4;
  Assembler it;
  it.move(kContext, BPF_REG_1);
  it.read(BPF_W, kFrame, kContext, offsetof(xdp_md, data));
  it.read(BPF_W, BPF_REG_3, kContext, offsetof(xdp_md, data_end));
  it.move(kScratch, kFrame);
  it.plus(kScratch, kHeadBytes);
  it.pass_if_registers(BPF_JGT, kScratch, BPF_REG_3);
  // IPv4 without options, not a fragment, UDP.
  it.read(BPF_H, kScratch, kFrame, kTypeAt);
  it.pass_if(BPF_JNE, kScratch, htons(0x0800));
  it.read(BPF_B, kScratch, kFrame, kVersionAt);
  it.pass_if(BPF_JNE, kScratch, 0x45);
  it.read(BPF_H, kScratch, kFrame, kFragmentAt);
  it.add(BPF_ALU64 | BPF_AND | BPF_K, kScratch, 0, 0, htons(0x3fff));
  it.pass_if(BPF_JNE, kScratch, 0);
  it.read(BPF_B, kScratch, kFrame, kProtocolAt);
  it.pass_if(BPF_JNE, kScratch, 17);
  it.read(BPF_W, kAddress, kFrame, kTargetAddressAt);
  it.read(BPF_H, kPort, kFrame, kTargetPortAt);
  // To the end that this queue's socket has.
  it.read(BPF_W, kQueue, kContext, offsetof(xdp_md, rx_queue_index));
  it.add(BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, kQueue, kKeyAt, 0);
  it.set_map(BPF_REG_1, ends);
  it.move(BPF_REG_2, BPF_REG_10);
  it.plus(BPF_REG_2, kKeyAt);
  it.call(BPF_FUNC_map_lookup_elem);
  it.pass_if(BPF_JEQ, BPF_REG_0, 0);
  it.read(BPF_W, BPF_REG_1, BPF_REG_0, offsetof(EndValue, address));
  it.pass_if_registers(BPF_JNE, BPF_REG_1, kAddress);
  it.read(BPF_H, BPF_REG_1, BPF_REG_0, offsetof(EndValue, port));
  it.pass_if_registers(BPF_JNE, BPF_REG_1, kPort);
  // Where no socket is left, the flags say: to the kernel.
  it.set_map(BPF_REG_1, sockets);
  it.move(BPF_REG_2, kQueue);
  it.set(BPF_REG_3, XDP_PASS);
  it.call(BPF_FUNC_redirect_map);
  it.leave();
  return it.finish();
}

Result<XdpProgram> XdpProgram::open(int interface, AttachMode mode) {
  const Netlink netlink;
  // Another process may put it there, or take it away, between two looks.
  Status last;
  for (int i = 0; i < 3; ++i) {
    const AttachedProgram there = netlink.attached_program(interface);
    Result<XdpProgram> found =
        there.id == 0 ? attach(interface, mode)
                      : find(interface, there.id,
                             there.is_generic ? AttachMode::kGeneric : AttachMode::kNative);
    if (found.ok() && mode != AttachMode::kAny && found->mode_ != mode) {
      return Status(ErrorCode::kUnavailable, std::string("xdp wire: another process has put our "
                                                         "program on the interface in ") +
                                                 to_string(found->mode_) + " mode");
    }
    if (found.ok() || netlink.attached_program(interface).id == there.id) {
      return found;
    }
    last = found.status();
  }
  return last;
}

Result<XdpProgram> XdpProgram::attach(int interface, AttachMode mode) {
  XdpProgram self;
  self.sockets_.reset(create_map(BPF_MAP_TYPE_XSKMAP, sizeof(std::uint32_t), kSocketsName));
  if (self.sockets_.get() < 0) {
    return refused("no map of AF_XDP sockets", errno);
  }
  self.ends_.reset(create_map(BPF_MAP_TYPE_ARRAY, sizeof(EndValue), kEndsName));
  if (self.ends_.get() < 0) {
    return refused("no BPF map", errno);
  }
  const std::vector<bpf_insn> program = program_of(self.sockets_.get(), self.ends_.get());
  Descriptor loaded(load(program, kHasFrags, {}));
  if (loaded.get() < 0) {
    loaded.reset(load(program, 0, {}));
  }
  if (loaded.get() < 0) {
    const int error = errno;
    std::vector<char> log(1 << 16);
    (void)load(program, 0, log);
    const std::string text(log.data());
    if (!text.empty()) {  // The verifier has looked at it: a fault of ours, no lack of rights.
      return Status(ErrorCode::kLibraryFailed,
                    "xdp wire: the kernel's verifier refuses our program; TUTTI_NET_WIRE=udp, and "
                    "please report this: " +
                        text);
    }
    return refused("the kernel does not load our program", error);
  }
  if (mode != AttachMode::kGeneric) {
    self.mode_ = AttachMode::kNative;
    self.link_.reset(create_link(loaded.get(), interface, XDP_FLAGS_DRV_MODE));
    self.native_error_ = self.link_.get() < 0 ? errno : 0;
  }
  if (mode != AttachMode::kNative && self.link_.get() < 0) {
    self.mode_ = AttachMode::kGeneric;
    self.link_.reset(create_link(loaded.get(), interface, XDP_FLAGS_SKB_MODE));
  }
  if (self.link_.get() < 0) {
    return refused("the interface takes no XDP program",
                   mode == AttachMode::kNative ? self.native_error_ : errno);
  }
  return self;
}

// One that is there already. It must be ours, of any process.
Result<XdpProgram> XdpProgram::find(int interface, std::uint32_t id, AttachMode mode) {
  const std::string where = "interface " + std::to_string(interface) + " has an XDP program (" +
                            std::to_string(id) + ") ";
  const Descriptor program(by_id(BPF_PROG_GET_FD_BY_ID, id));
  if (program.get() < 0) {
    return refused((where + "already, and this process may not look whether it is ours; several "
                            "processes need CAP_SYS_ADMIN or a running tutti-xdp-helper")
                       .c_str(),
                   errno);
  }
  std::array<std::uint32_t, 8> maps{};
  bpf_prog_info info{};
  info.nr_map_ids = maps.size();
  info.map_ids = pointer(maps.data());
  if (!get_info(program.get(), &info) || std::string_view(info.name) != kProgramName) {
    return Status(ErrorCode::kUnavailable,
                  "xdp wire: " + where + "of somebody else ('" + info.name +
                      "'), which stays; another interface, or TUTTI_NET_WIRE=udp");
  }
  XdpProgram self;
  self.mode_ = mode;
  self.link_ = link_of(id);
  for (std::size_t i = 0; i < std::min<std::size_t>(info.nr_map_ids, maps.size()); ++i) {
    Descriptor map(by_id(BPF_MAP_GET_FD_BY_ID, maps[i]));
    bpf_map_info of_map{};
    if (map.get() >= 0 && get_info(map.get(), &of_map)) {
      (std::string_view(of_map.name) == kEndsName ? self.ends_ : self.sockets_) = std::move(map);
    }
  }
  if (self.link_.get() < 0 || self.sockets_.get() < 0 || self.ends_.get() < 0) {
    return Status(ErrorCode::kUnavailable,
                  "xdp wire: " + where + "of ours whose maps or link are not to be had");
  }
  return self;
}

Status XdpProgram::add(std::uint32_t queue, int socket, const UdpEnd& end) const {
  if (queue >= kQueuesMax) {
    return Status(ErrorCode::kUnsupported, "xdp wire: queue " + std::to_string(queue) +
                                               " is beyond " + std::to_string(kQueuesMax - 1));
  }
  const EndValue value{.address = end.address, .port = end.port};
  const std::uint32_t descriptor = static_cast<std::uint32_t>(socket);
  if (set_element(ends_.get(), queue, &value) != 0 ||
      set_element(sockets_.get(), queue, &descriptor) != 0) {
    return refused("the program does not take the socket", errno);
  }
  return {};
}

void XdpProgram::remove(std::uint32_t queue, const UdpEnd& end) const {
  EndValue there;
  if (!get_element(ends_.get(), queue, &there) || UdpEnd{there.address, there.port} != end) {
    return;
  }
  // Without an end the program does not look at the socket.
  const EndValue none;
  (void)set_element(ends_.get(), queue, &none);
  delete_element(sockets_.get(), queue);
}

}  // namespace tutti::wire::xdp
