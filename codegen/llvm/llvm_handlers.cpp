#include "codegen/llvm/llvm_handlers.h"

#include <link.h>
#include <llvm/Support/ErrorHandling.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "support/fork.h"
#include "support/lasting.h"

namespace gradloom::codegen {
namespace {

using llvm::fatal_error_handler_t;

thread_local int depth = 0;  // of compilations on this thread

// The variables of the loaded object that holds an address, and their values.
struct Variables {
  uintptr_t inside = 0;
  std::vector<const uintptr_t*> words;
  std::vector<uintptr_t> values;
};

uintptr_t read_word(const uintptr_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

int add_words(dl_phdr_info* info, size_t, void* to) {
  auto& found = *static_cast<Variables*>(to);
  const auto begin = [&](const ElfW(Phdr) & part) { return info->dlpi_addr + part.p_vaddr; };
  const auto holds = [&](const ElfW(Phdr) & part, uintptr_t at) { return at - begin(part) < part.p_memsz; };
  const std::span parts(info->dlpi_phdr, info->dlpi_phnum);
  if (std::none_of(parts.begin(), parts.end(),
                   [&](const auto& part) { return part.p_type == PT_LOAD && holds(part, found.inside); }))
    return 0;
  const auto constant =
      std::find_if(parts.begin(), parts.end(), [](const auto& part) { return part.p_type == PT_GNU_RELRO; });
  for (const auto& part : parts) {
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_W)) continue;
    constexpr uintptr_t width = sizeof(uintptr_t);
    const uintptr_t end = begin(part) + part.p_memsz;
    for (uintptr_t at = (begin(part) + width - 1) / width * width; at + width <= end; at += width)
      if (constant == parts.end() || !holds(*constant, at))
        found.words.push_back(reinterpret_cast<const uintptr_t*>(at));
  }
  found.values.reserve(found.words.size());
  for (const uintptr_t* word : found.words) found.values.push_back(read_word(word));
  return 1;
}

// One of LLVM's handlers. LLVM has a function to set it and none to read it, so the two variables that setting it
// changes are searched for, once.
class Handler {
 public:
  Handler(void (*install)(fatal_error_handler_t, void*), void (*remove)(), fatal_error_handler_t ours)
      : install_(install), remove_(remove), ours_(ours) {}

  void enter(const Variables& before) {
    theirs_ = read();
    install_(ours_, this);
    if (!function_) find(before);
  }
  void leave() {
    // Whoever installed another one meanwhile keeps it.
    if (function_ && read().function != ours_) return;
    theirs_.function ? install_(theirs_.function, theirs_.data) : remove_();
  }
  // Forwards what happened on a thread that compiles nothing.
  void forward(const char* reason, bool diagnose) const {
    if (theirs_.function) return theirs_.function(theirs_.data, reason, diagnose);
    std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
  }
  bool known() const { return function_; }

 private:
  struct Installed {
    fatal_error_handler_t function = nullptr;
    void* data = nullptr;
  };
  Installed read() const {
    if (!function_) return {};
    return {reinterpret_cast<fatal_error_handler_t>(read_word(function_)), reinterpret_cast<void*>(read_word(data_))};
  }
  // `before`: LLVM's variables before ours was installed.
  void find(const Variables& before) {
    const uintptr_t* found[2] = {};
    uintptr_t old[2] = {};
    const uintptr_t wanted[2] = {reinterpret_cast<uintptr_t>(ours_), reinterpret_cast<uintptr_t>(this)};
    for (size_t i = 0; i < before.words.size(); ++i) {
      for (int k = 0; k < 2; ++k) {
        if (read_word(before.words[i]) != wanted[k] || before.values[i] == wanted[k]) continue;
        if (found[k]) return;
        found[k] = before.words[i];
        old[k] = before.values[i];
      }
    }
    if (!found[0] || !found[1]) return;
    function_ = found[0];
    data_ = found[1];
    theirs_ = {reinterpret_cast<fatal_error_handler_t>(old[0]), reinterpret_cast<void*>(old[1])};
  }

  void (*const install_)(fatal_error_handler_t, void*);
  void (*const remove_)();
  const fatal_error_handler_t ours_;
  Installed theirs_;
  const uintptr_t *function_ = nullptr, *data_ = nullptr;  // LLVM's variables; null: not found yet
};

void on_fatal_error(void* handler, const char* reason, bool diagnose) {
  if (depth > 0) throw LlvmFailure{ErrorCode::compile_failed, std::string("llvm: ") + reason};
  static_cast<Handler*>(handler)->forward(reason, diagnose);
}

void on_bad_alloc(void* handler, const char* reason, bool diagnose) {
  if (depth > 0) throw std::bad_alloc();
  static_cast<Handler*>(handler)->forward(reason, diagnose);
}

struct Handlers {
  Handler fatal{llvm::install_fatal_error_handler, llvm::remove_fatal_error_handler, on_fatal_error};
  Handler bad_alloc{llvm::install_bad_alloc_error_handler, llvm::remove_bad_alloc_error_handler, on_bad_alloc};
  int compilations = 0;  // of all threads
};

// Held in scopes that no fork happens in, as the compilations are: a child finds those of its one thread alone.
constinit Mutex mutex;

Handlers& handlers() {
  static constinit Lasting<Handlers> instance;
  return *instance;
}

}  // namespace

LlvmHandlers::LlvmHandlers() {
  Handlers& all = handlers();
  std::lock_guard lock(mutex);
  if (all.compilations == 0) {
    Variables before{reinterpret_cast<uintptr_t>(&llvm::install_fatal_error_handler), {}, {}};
    if (!all.fatal.known() || !all.bad_alloc.known()) dl_iterate_phdr(add_words, &before);
    all.fatal.enter(before);
    all.bad_alloc.enter(before);
  }
  ++all.compilations;
  ++depth;
}

LlvmHandlers::~LlvmHandlers() {
  --depth;
  std::lock_guard lock(mutex);
  Handlers& all = handlers();
  if (--all.compilations > 0) return;
  all.fatal.leave();
  all.bad_alloc.leave();
}

}  // namespace gradloom::codegen
