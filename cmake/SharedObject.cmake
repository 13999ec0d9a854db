# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
include_guard(GLOBAL)
include(OldestGlibc)

# tutti_shared_object(<target> [MAP <file>]): makes a shared library fit to be loaded into any process.
# It brings its C++ runtime along, hidden; it needs nothing but libc's family; it exports only what
# cmake/<file> names, exports.map if none is given. tests/python/test_shared_objects.py checks all three.
# Exported functions must be compiled into <target> itself, not come from a room's archive.
# BESIDE: it needs another one of ours, which the linker takes from its own directory before any other
# (RPATH, not RUNPATH, which LD_LIBRARY_PATH would come before).
function(tutti_shared_object target)
  cmake_parse_arguments(OBJECT "BESIDE" "MAP" "" ${ARGN})
  if(NOT OBJECT_MAP)
    set(OBJECT_MAP exports.map)
  endif()
  set(map "${PROJECT_SOURCE_DIR}/cmake/${OBJECT_MAP}")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}" LINKER:--exclude-libs,ALL
                                        LINKER:--as-needed)
  # What is loaded stays: a thread may still be in it, of an engine or one that waits for a library.
  target_link_options(${target} PRIVATE LINKER:-z,nodelete)
  # A sanitizer's runtime is in the executable: symbols stay open, one C++ runtime for all.
  if(NOT TUTTI_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc LINKER:-z,defs)
  endif()
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${map}" INSTALL_RPATH "$ORIGIN")
  tutti_oldest_glibc(${target})
  if(OBJECT_BESIDE)
    target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
    set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  endif()
endfunction()
