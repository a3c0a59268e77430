// A process that may not have executable memory is told so, and no file of the cache is blamed.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>

#include "tests/support/warm_cache.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

namespace gradloom {
namespace {

using namespace testing;

bool deny_by_prctl() { return prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) == 0; }

bool deny_by_seccomp() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(code), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum Outcome { as_wanted, not_denied, served, other_error, file_blamed };

using DeniedMemoryTest = WarmCacheTest;

TEST_F(DeniedMemoryTest, IsNamedAndNoFileIsBlamed) {
  {
    Runtime runtime(options());
    ASSERT_TRUE(right(runtime, 0));
  }
  for (bool (*deny)() : {deny_by_prctl, deny_by_seccomp}) {
    for (const int kernel : {0, 1}) {  // loaded, compiled
      const int outcome = in_child([&]() -> int {
        if (!deny()) return not_denied;
        Runtime runtime(options());
        const auto outputs = runtime.run("GatherGrad", inputs_of(kernel));
        if (outputs) return served;
        const std::string what = outputs.error().what();
        if (outputs.error().code() != ErrorCode::unsupported ||
            what.find("executable memory was denied") == what.npos || what.find('\n') != what.npos)
          return other_error;
        return runtime.stats().disk_rejected == 0 && log_.empty() ? as_wanted : file_blamed;
      });
      if (outcome == not_denied) continue;  // this kernel has no such policy
      EXPECT_EQ(outcome, as_wanted) << (deny == deny_by_prctl ? "PR_SET_MDWE" : "seccomp") << ", kernel " << kernel;
    }
  }
  // The kernel on disk is as good as before.
  Runtime runtime(options());
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().disk_hits, 1);
}

}  // namespace
}  // namespace gradloom
