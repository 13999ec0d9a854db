# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# What `cmake --install` lays down; the prefix may be moved afterwards.
#
#   component runtime       lib/libtutti.so.0 lib/libtutti-mpi.so lib/lib{nccl,rccl}-net-tutti.so
#                           share/tutti/tuning/*.json
#   component measure       lib/tutti/tutti-measure-* (bench/measure)
#   component command       bin/tutti sbin/tutti-xdp-helper share/tutti/python
#                           share/modulefiles/tutti/<version>
#   component development   include/tutti/*.h lib/cmake/tutti lib/pkgconfig/tutti.pc
#                           share/tutti/examples lib/libtutti-host-device.so
#
# The wheel (scikit-build-core sets SKBUILD) takes runtime and measure, below tutti_hpc/ in the package,
# all binaries in tutti_hpc/lib. A wheel cannot hold symbolic links, so the library there is plain
# libtutti.so.
include(CMakePackageConfigHelpers)

# All that `tutti` needs, without the tests.
add_custom_target(tutti_product DEPENDS tutti_shared tutti_mpi_preload tutti_rccl_net tutti_host_device
                                        tutti-xdp-helper)
foreach(flavour mpich openmpi abi net)
  if(TARGET tutti-measure-${flavour})
    add_dependencies(tutti_product tutti-measure-${flavour})
  endif()
endforeach()

file(GLOB public_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/tutti/*.h"
                                           "${PROJECT_SOURCE_DIR}/include/tutti/*.hpp")
target_sources(tutti_shared PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include"
                                   FILES ${public_headers})
set_target_properties(tutti_shared PROPERTIES OUTPUT_NAME tutti EXPORT_NAME tutti)
if(NOT SKBUILD)
  set_target_properties(tutti_shared PROPERTIES VERSION ${PROJECT_VERSION}
                                                SOVERSION ${PROJECT_VERSION_MAJOR})
endif()
set_target_properties(tutti_mpi_preload PROPERTIES OUTPUT_NAME tutti-mpi)

install(TARGETS tutti_shared EXPORT tuttiTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
                NAMELINK_COMPONENT development
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(TARGETS tutti_mpi_preload
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(TARGETS tutti_nccl_net tutti_rccl_net
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(TARGETS tutti_host_device LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tuning/" DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/tuning
        COMPONENT runtime FILES_MATCHING PATTERN "*.json")

if(NOT SKBUILD)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/modulefile.in" modulefile @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/modulefile" COMPONENT command
          DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/tutti RENAME ${PROJECT_VERSION})

  set(python_directory ${CMAKE_INSTALL_DATADIR}/tutti/python)
  file(RELATIVE_PATH bin_to_python "/${CMAKE_INSTALL_BINDIR}" "/${python_directory}")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/tutti.in" tutti_command @ONLY)
  install(PROGRAMS "${CMAKE_CURRENT_BINARY_DIR}/tutti_command" COMPONENT command
          DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME tutti)
  install(TARGETS tutti-xdp-helper RUNTIME DESTINATION ${CMAKE_INSTALL_SBINDIR} COMPONENT command)
  file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/python_version" CONTENT "${PROJECT_VERSION}\n")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/tutti_hpc" DESTINATION ${python_directory}
          COMPONENT command FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/python_version" COMPONENT command
          DESTINATION ${python_directory}/tutti_hpc RENAME VERSION)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti
          COMPONENT development PATTERN "__pycache__" EXCLUDE)
endif()

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${package_directory}
        COMPONENT development)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/tuttiConfig.cmake.in" tuttiConfig.cmake
                              INSTALL_DESTINATION ${package_directory}
                              PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tuttiConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/tuttiConfigVersion.cmake"
        DESTINATION ${package_directory} COMPONENT development)

file(RELATIVE_PATH pkgconfig_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${CMAKE_CURRENT_LIST_DIR}/tutti.pc.in" tutti.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tutti.pc"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
