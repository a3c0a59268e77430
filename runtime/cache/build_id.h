#pragma once
// What tells builds of the library apart, in the keys of what outlives a process. The build makes the source file from
// the contents of all sources.

namespace gradloom {

const char*
build_id();  // of everything that can change the IR of a library op's kernel, or the code that becomes of it
const char* emitter_id();  // of everything that can change the code that becomes of a given IR

}  // namespace gradloom
