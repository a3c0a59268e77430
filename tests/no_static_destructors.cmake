# cmake -P script: LIBRARY, an archive, and NM are given by the test. No object in it registers a destructor of a static object, which exit would run while other
# threads use the object, or makes one under the compiler's guard, which a child of fork may find taken: support/lasting.h has what to use instead.
execute_process(COMMAND ${NM} -Au ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]* U (__cxa_atexit|__cxa_thread_atexit|__cxa_guard_acquire)\n" found "${symbols}")
foreach(line ${found})
  message(SEND_ERROR "${line}")
endforeach()
string(FIND "${symbols}" " U pthread_atfork" looked)
if(looked EQUAL -1)
  message(SEND_ERROR "${LIBRARY}: no symbols were found")
endif()
