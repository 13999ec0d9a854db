// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The device images of this build (cmake/device_images.py makes them) and the kernels of the host
// device, which are the same source compiled for the CPU.
#pragma once

#include <span>

#include "device/host_module.hpp"

namespace tutti::device::kernels {

struct Image {
  const char* runtime;  ///< device::Api::name() of those that load it: "cuda", "hip".
  const char* target;   ///< "sm_90", "ptx", "gfx942".
  struct {
    const unsigned char* begin;
    const unsigned char* end;
  } bytes;
};

/// In the order in which they should be tried: a driver refuses those that are not for its GPU.
/// Empty when this build had no compiler for them.
std::span<const Image> images();

const HostModule& host_image();

}  // namespace tutti::device::kernels
