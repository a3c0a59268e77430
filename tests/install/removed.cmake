# cmake -P script: what was installed from BUILD under PREFIX is uninstalled, and nothing but folders that may be
# another's stays.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
run(${CMAKE_COMMAND} -DMANIFEST=${BUILD}/install_manifest.txt -P ${SOURCE}/cmake/uninstall.cmake)
if(EXISTS ${BUILD}/install_manifest.kept)
  file(RENAME ${BUILD}/install_manifest.kept ${BUILD}/install_manifest.txt)
endif()
file(GLOB_RECURSE left LIST_DIRECTORIES true RELATIVE ${PREFIX} ${PREFIX}/*)
list(FILTER left EXCLUDE REGEX "^(bin|include|share|share/doc|lib[^.]*|lib.*/(cmake|pkgconfig))$")
if(left)
  message(FATAL_ERROR "left after uninstall: ${left}")
endif()
