# cmake -P script: installs the build BUILD under PREFIX, for the tests that follow. COMMAND: whether the command belongs
# to it.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(REMOVE_RECURSE ${PREFIX})
if(EXISTS ${BUILD}/install_manifest.txt)  # what its user installed; removed.cmake puts it back
  file(RENAME ${BUILD}/install_manifest.txt ${BUILD}/install_manifest.kept)
endif()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX})
file(GLOB_RECURSE headers RELATIVE ${PREFIX}/include ${PREFIX}/include/*)
if(NOT headers OR NOT headers MATCHES "^(gradloom/[a-z_]+[.]h;?)+$")
  message(FATAL_ERROR "the installed headers are not those under one prefix: ${headers}")
endif()
if(COMMAND)
  run(${PREFIX}/bin/gradloom --version)
endif()
