// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// What tables have in common, and the scope that makes a device current.
#include "device/device.hpp"

namespace tutti::device {

Result<bool> Api::is_capturing(Stream /*stream*/) { return false; }

namespace {
Status no_order() {
  return Status(ErrorCode::kUnsupported, "launches of graphs have no order here");
}
}  // namespace
Result<std::uint64_t> Api::capture_id(Stream /*stream*/) { return no_order(); }
Status Api::wait_at_launch(Stream /*stream*/, Event /*event*/) { return no_order(); }
Result<GraphNode> Api::record_at_launch(Stream /*stream*/, Event /*event*/, GraphNode /*before*/) {
  return no_order();
}
Status Api::on_graph_end(Stream /*stream*/, void (* /*release*/)(void*), void* /*argument*/) {
  return no_order();
}

Status Api::check_stream(Stream /*stream*/, int /*device*/) { return {}; }

int Api::stream_device(Stream /*stream*/) { return current_device(); }

Result<void*> Api::allocate_shared(int device, Bytes bytes, Sharing sharing) {
  if (sharing == Sharing::kIpc) {
    return allocate_device(device, bytes);
  }
  return Status(ErrorCode::kUnsupported,
                std::string(name()) + ": memory is shown to other processes by its handles alone");
}

Status Api::register_host(void* /*memory*/, Bytes /*bytes*/, int /*device*/) {
  return Status(ErrorCode::kUnsupported, std::string(name()) + ": host memory stays as it is");
}
Status Api::unregister_host(void* /*memory*/) { return {}; }

Result<Launcher> Api::create_launcher(Function /*function*/, int /*device*/,
                                      const LaunchShape& /*shape*/, void** /*arguments*/) {
  return Launcher{};
}
Status Api::destroy_launcher(Launcher /*launcher*/) { return {}; }
Status Api::launch_again(Launcher /*launcher*/, const LaunchShape& /*shape*/, Stream /*stream*/,
                         void** /*arguments*/) {
  return Status(ErrorCode::kUnsupported, "this device prepares no launches");
}

Result<std::string> Api::pci_address(int) {
  return Status(ErrorCode::kUnsupported, std::string(name()) + ": no device is on a PCI bus");
}

Result<int> Api::concurrent_processors(int) { return 0; }

Result<CurrentDevice> CurrentDevice::set(Api& api, int device, Stream stream) {
  TUTTI_ASSIGN_OR_RETURN(void* previous, api.make_current(device));
  return CurrentDevice(&api, previous, api.exchange_current_stream(stream));
}

CurrentDevice::CurrentDevice(CurrentDevice&& other) noexcept
    : api_(other.api_), previous_(other.previous_), previous_stream_(other.previous_stream_) {
  other.api_ = nullptr;
}

CurrentDevice::~CurrentDevice() {
  if (api_ != nullptr) {
    (void)api_->exchange_current_stream(previous_stream_);
    api_->restore_current(previous_);
  }
}

}  // namespace tutti::device
