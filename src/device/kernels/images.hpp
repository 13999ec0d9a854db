// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// The device images of this build (cmake/device_images.py makes them).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/lzma.hpp"

namespace tutti::device::kernels {

struct Image {
  const char* runtime;  ///< device::Api::name() of those that load it: "cuda", "hip".
  const char* target;   ///< "sm_90", "ptx", "gfx942".
  struct {
    const unsigned char* begin;
    const unsigned char* end;
  } packed;           ///< See base/lzma.hpp.
  std::size_t bytes;  ///< Size when unpacked.
};

/// In the order in which they should be tried: a driver refuses those that are not for its GPU.
/// Empty when this build had no compiler for them.
std::span<const Image> images();

/// What Api::load_module() takes; 10 to 30 ms.
inline Result<std::vector<unsigned char>> unpack(const Image& image) {
  return unpack_lzma({image.packed.begin, image.packed.end}, image.bytes);
}

}  // namespace tutti::device::kernels
