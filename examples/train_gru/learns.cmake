# cmake -P script: a short training learns, gives the same bits at any thread count, and follows the numpy reference (REFERENCE, where numpy is installed).
set(loss_below 2.6)
foreach(threads 1 2)
  execute_process(COMMAND ${TRAIN_GRU} --text ${TEXT} --steps 150 --hidden 32 --embedding 16 --sequence 32 --batch 8 --sample 100 --threads ${threads}
                          --losses ${FOLDER}/losses_${threads}.txt
                  OUTPUT_VARIABLE output_${threads} COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${FOLDER}/losses_${threads}.txt losses_${threads})
endforeach()
message("${output_1}")
if(NOT output_1 STREQUAL output_2 OR NOT losses_1 STREQUAL losses_2)
  message(FATAL_ERROR "two threads give other losses than one:\n${output_2}")
endif()
string(REGEX MATCH "final loss ([0-9.]+)" found "${output_1}")
if(NOT CMAKE_MATCH_1 LESS loss_below)
  message(FATAL_ERROR "the final loss is ${CMAKE_MATCH_1}; it must be below ${loss_below}")
endif()
if(REFERENCE)
  execute_process(COMMAND python3 ${REFERENCE} ${FOLDER}/losses_1.txt COMMAND_ERROR_IS_FATAL ANY)
endif()
