# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# tutti_device_images(<variable>): the source file that embeds the device images, built from
# src/device/kernels by cmake/device_images.py (which says what compilers it looks for).
# TUTTI_DEVICE_IMAGES=OFF leaves them out: the direct backend then has the host device only.
include_guard(GLOBAL)
option(TUTTI_DEVICE_IMAGES "Build the GPU kernels of the direct backend" ON)
# The Python that has the compilers' packages: an isolated wheel build names its own, `make` puts
# .env/tools first in PATH.
if(SKBUILD AND Python3_EXECUTABLE)
  set(images_python "${Python3_EXECUTABLE}")
else()
  find_program(images_python NAMES python3 NO_CACHE)
endif()

function(tutti_device_images variable)
  set(script "${PROJECT_SOURCE_DIR}/cmake/device_images.py")
  set(output "${PROJECT_BINARY_DIR}/device_images")
  if(NOT TUTTI_DEVICE_IMAGES OR NOT images_python)
    file(CONFIGURE OUTPUT "${output}/images.cpp" CONTENT [=[
#include "device/kernels/images.hpp"
namespace tutti::device::kernels {
std::span<const Image> images() { return {}; }
}  // namespace tutti::device::kernels
]=] @ONLY)
    message(STATUS "device images: none")
  else()
    file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/device/kernels/*")
    add_custom_command(
      OUTPUT "${output}/images.cpp"
      COMMAND "${images_python}" "${script}" --source "${PROJECT_SOURCE_DIR}/src"
              --output "${output}"
      DEPENDS "${script}" ${sources}
      COMMENT "Building the device images" VERBATIM)
  endif()
  set(${variable} "${output}/images.cpp" PARENT_SCOPE)
endfunction()
