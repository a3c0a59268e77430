# cmake -P script: builds the project third_party against PREFIX with the compilers CC and CXX in the folder WORK, and
# runs each of its programs.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
if(NOT CXX)
  message("skipped: no clang++ is installed")
  return()
endif()
file(REMOVE_RECURSE ${WORK})
set(ENV{GRADLOOM_CACHE_DIR} ${WORK}/cache)  # one program's kernels are the next one's
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/third_party -B ${WORK} -G Ninja -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_C_FLAGS=${FLAGS} -DCMAKE_CXX_FLAGS=${FLAGS} -DEVERYTHING=${EVERYTHING})
run(${CMAKE_COMMAND} --build ${WORK} -j 2)
file(STRINGS ${WORK}/programs.txt programs)
foreach(program ${programs})
  if(program MATCHES "^train_gru")
    run(${WORK}/${program} --check-gradient)
  else()
    run(${WORK}/${program})
  endif()
endforeach()
