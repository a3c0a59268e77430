# Writes OUT: what tells this build of the library from others, from the contents of its sources and from SALT (compiler and flags). Two ids: of all that can
# change a kernel's IR, and of all that can change what becomes of an IR.
set(build "${SALT}")
set(emitter "${SALT}")
string(REPLACE ":" ";" FILES "${FILES}")
foreach(file ${FILES})
  file(SHA256 ${SOURCE}/${file} digest)
  string(APPEND build "${file} ${digest}\n")
  if(file MATCHES "^(include|support|ir|codegen)/" AND NOT file MATCHES "^ir/schedule/")
    string(APPEND emitter "${file} ${digest}\n")
  endif()
endforeach()
string(SHA256 build "${build}")
string(SHA256 emitter "${emitter}")
string(SUBSTRING ${build} 0 32 build)
string(SUBSTRING ${emitter} 0 32 emitter)
file(WRITE ${OUT} "#include \"runtime/cache/build_id.h\"

namespace gradloom {

const char* build_id() { return \"${build}\"; }
const char* emitter_id() { return \"${emitter}\"; }

}  // namespace gradloom
")
