#pragma once
// Identifies the build of the library, in keys of data that outlives a process. The build generates the source file
// from the contents of all sources.

namespace gradloom {

const char* build_id();  // of everything that can change the IR of a library op's kernel, or the code generated from it
const char* emitter_id();  // of everything that can change the code generated from a given IR

}  // namespace gradloom
