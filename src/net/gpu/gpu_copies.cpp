// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
#include "net/gpu/gpu_copies.hpp"

#include <algorithm>
#include <utility>

#include "device/pointer_kind.hpp"

namespace tutti::net {
namespace {

/// Of what is freed at the end, the GPU library may be gone before.
void ignore(const Status& status) { static_cast<void>(status); }

}  // namespace

GpuCopies::~GpuCopies() {
  const device::RelaxedCapture relaxed(*api_);
  for (const auto& gpu : gpus_) {
    if (gpu != nullptr) {
      end(*gpu);
    }
  }
  if (trial_ != nullptr) {
    ignore(api_->free_device(trial_));
  }
}

int GpuCopies::device_of(const void* memory) {
  return device::kind_of_pointer(api_.get(), memory).device;
}

std::span<std::byte> GpuCopies::trial_memory() {
  const int device = api_->is_in_use() ? api_->current_device() : -1;
  if (trial_ == nullptr && device >= 0) {
    const device::RelaxedCapture relaxed(*api_);
    const Result<void*> made = api_->allocate_device(device, kTrialBytes);
    trial_ = made.ok() ? *made : nullptr;
  }
  return {static_cast<std::byte*>(trial_), trial_ == nullptr ? 0 : kTrialBytes};
}

GpuCopies::Gpu* GpuCopies::find(int device) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(device);
  return index < gpus_.size() ? gpus_[index].get() : nullptr;
}

Status GpuCopies::prepare(const void* memory) {
  const device::PointerInfo info = device::kind_of_pointer(api_.get(), memory);
  const int device = info.device;
  if (device < 0) {
    return {};
  }
  if (!info.is_usable_on(device)) {
    return Status(ErrorCode::kInvalidArgument,
                  "memory of GPU " + std::to_string(device) +
                      " that belongs to another context than the primary one");
  }
  const std::lock_guard one(prepare_mutex_);
  if (find(device) != nullptr) {
    return {};
  }
  const device::RelaxedCapture relaxed(*api_);
  TUTTI_ASSIGN_OR_RETURN(auto gpu, make(device));
  show_sources(device);
  const std::lock_guard lock(mutex_);
  gpus_.resize(std::max(gpus_.size(), static_cast<std::size_t>(device) + 1));
  gpus_[static_cast<std::size_t>(device)] = std::move(gpu);
  return {};
}

Result<std::unique_ptr<GpuCopies::Gpu>> GpuCopies::make(int device) {
  auto gpu = std::make_unique<Gpu>();
  auto scatter = device::ScatterCopy::create(*api_, device);
  gpu->has_kernel = scatter.ok();
  if (scatter.ok()) {
    gpu->scatter = std::move(*scatter);
  } else {
    gpu->why_none = scatter.status().message();
  }
  const Status made = [&]() -> Status {
    TUTTI_ASSIGN_OR_RETURN(gpu->stream, api_->create_stream(device));
    TUTTI_ASSIGN_OR_RETURN(
        void* const pieces,
        api_->allocate_pinned(kLaunchesMax * kPiecesMax * sizeof(device::ScatterPiece), device));
    gpu->pieces = static_cast<device::ScatterPiece*>(pieces);
    for (std::size_t i = 0; i < kLaunchesMax; ++i) {
      gpu->launches[i].pieces = gpu->pieces + i * kPiecesMax;
      TUTTI_ASSIGN_OR_RETURN(gpu->launches[i].event, api_->create_event(device));
    }
    return {};
  }();
  if (!made.ok()) {
    end(*gpu);
    return made;
  }
  return gpu;
}

void GpuCopies::end(Gpu& gpu) {
  gpu.scatter = device::ScatterCopy();
  for (const Launch& launch : gpu.launches) {
    if (launch.event != nullptr) {
      ignore(api_->destroy_event(launch.event));
    }
  }
  if (gpu.pieces != nullptr) {
    ignore(api_->free_pinned(gpu.pieces));
  }
  if (gpu.stream != nullptr) {
    ignore(api_->destroy_stream(gpu.stream));
  }
}

void GpuCopies::add_source(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  sources_.emplace_back().memory = memory;
}

/// Once for all GPUs. Where that cannot be, kernels do not read it.
void GpuCopies::show_sources(int device) {
  std::vector<Source> sources;
  {
    const std::lock_guard lock(mutex_);
    sources = sources_;
  }
  for (const Source& source : sources) {
    const std::span<std::byte> memory = source.memory;
    if (source.is_shown) {
      continue;
    }
    const Status shown = api_->register_host(memory.data(), memory.size(), device);
    const std::lock_guard lock(mutex_);
    for (Source& it : sources_) {
      if (it.memory.data() == memory.data()) {
        it.is_shown = it.is_shown || shown.ok();
        it.why_not = it.is_shown ? "" : shown.message();
      }
    }
  }
}

std::string GpuCopies::shortfall(int device) {
  const Gpu* const gpu = find(device);
  if (gpu == nullptr) {
    return {};
  }
  std::string why;
  if (!gpu->has_kernel) {
    why = "there is no kernel (" + gpu->why_none + ")";
  } else {
    const std::lock_guard lock(mutex_);
    const auto hidden = std::find_if(sources_.begin(), sources_.end(),
                                     [](const Source& source) { return !source.is_shown; });
    if (hidden == sources_.end()) {
      return {};
    }
    why = hidden->why_not.empty() ? "receive buffers came after the GPU's first registration"
                                  : "it cannot map receive buffers (" + hidden->why_not + ")";
  }
  return "one copy for each packet to GPU " + std::to_string(device) +
         ", not one launch for many: " + why;
}

void GpuCopies::remove_source(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  for (const Source& source : sources_) {
    if (source.memory.data() == memory.data() && source.is_shown) {
      ignore(api_->unregister_host(memory.data()));
    }
  }
  std::erase_if(sources_, [&](const Source& it) { return it.memory.data() == memory.data(); });
}

bool GpuCopies::are_sources_shown() {
  const std::lock_guard lock(mutex_);
  return std::all_of(sources_.begin(), sources_.end(),
                     [](const Source& source) { return source.is_shown; });
}

bool GpuCopies::has_kernel(int device) {
  const Gpu* const gpu = find(device);
  return gpu != nullptr && gpu->has_kernel && are_sources_shown();
}

Status GpuCopies::queue(Gpu& gpu, Launch& launch, std::span<const Piece> pieces) {
  if (gpu.has_kernel && are_sources_shown()) {
    std::transform(pieces.begin(), pieces.end(), launch.pieces,
                   [](const Piece& piece) -> device::ScatterPiece {
                     return {piece.from, piece.to, piece.bytes};
                   });
    TUTTI_RETURN_IF_ERROR(gpu.scatter.copy(gpu.stream, launch.pieces, pieces.size()));
  } else {
    for (const Piece& piece : pieces) {
      TUTTI_RETURN_IF_ERROR(api_->copy_async(piece.to, piece.from, piece.bytes, gpu.stream));
    }
  }
  return api_->record_event(launch.event, gpu.stream);
}

Result<std::uint64_t> GpuCopies::start(int device, std::span<const Piece> pieces) {
  Gpu* const gpu = find(device);
  if (gpu == nullptr) {
    return Status(ErrorCode::kInvalidArgument,
                  "GPU " + std::to_string(device) + " was not prepared for copies");
  }
  const auto free = std::find_if(gpu->launches.begin(), gpu->launches.end(),
                                 [](const Launch& launch) { return !launch.is_under_way; });
  if (free == gpu->launches.end()) {
    return std::uint64_t{0};
  }
  const device::RelaxedCapture relaxed(*api_);
  const Status queued = queue(*gpu, *free, pieces);
  if (!queued.ok()) {
    ignore(
        api_->wait_stream(gpu->stream));  // Of some of them, before their buffers are used again.
    return queued;
  }
  free->is_under_way = true;
  return 1 + static_cast<std::uint64_t>(device) * kLaunchesMax +
         static_cast<std::uint64_t>(free - gpu->launches.begin());
}

wire::DeviceCopies::State GpuCopies::state(std::uint64_t copies) {
  Gpu* const gpu = find(static_cast<int>((copies - 1) / kLaunchesMax));
  Launch& launch = gpu->launches[(copies - 1) % kLaunchesMax];
  const device::RelaxedCapture relaxed(*api_);
  const Result<bool> is_done = api_->event_done(launch.event);
  if (is_done.ok() && !*is_done) {
    return State::kUnderWay;
  }
  launch.is_under_way = false;
  return is_done.ok() ? State::kEnded : State::kFailed;
}

}  // namespace tutti::net
