// Every refusal of a schedule step on random kernels and those of tests/text under random schedules, counted by
// message, and audited: of each message the first ones in number. A message that is never true would be a defect of the
// step. GRADLOOM_AUDIT_RUNS: the number of kernels; GRADLOOM_AUDIT_SEED: the first one; GRADLOOM_AUDIT_EACH: how many
// of each message are audited; GRADLOOM_AUDIT_TABLE: if set, the table is printed.
#include <gtest/gtest.h>

#include <iostream>

#include "gradloom/text.h"
#include "tests/support/environment.h"
#include "tests/support/random_schedule.h"
#include "tests/support/step_refusals.h"
#include "tests/support/text_case.h"

namespace gradloom::ir::testing {
namespace {

std::string lines_of(const std::vector<std::string>& trace) {
  std::string text;
  for (const std::string& line : trace) text += "  " + line + "\n";
  return text;
}

struct Row {
  int64_t times = 0, audited = 0, right = 0;
};

// Prints the counts and returns their sums.
Row audit(const std::string& of, RandomCase (*kernel)(uint64_t)) {
  const int64_t runs = environment("GRADLOOM_AUDIT_RUNS", 60), first = environment("GRADLOOM_AUDIT_SEED", 1),
                each = environment("GRADLOOM_AUDIT_EACH", 20);
  std::map<std::string, Row> table;
  for (int64_t seed = first; seed < first + runs; ++seed) {
    const RandomCase c = kernel(static_cast<uint64_t>(seed));
    const RefusalAudit audit(c);
    for (uint64_t schedule = 0; schedule < 4; ++schedule) {
      RandomSchedule steps(c.kernel, static_cast<uint64_t>(seed) * 4 + schedule, schedule % 2 == 1);
      int accepted = 0;
      for (int k = 0; k < 40 && accepted < 8; ++k) {
        try {
          accepted += steps.step();
        } catch (const Error& error) {
          ADD_FAILURE() << "seed " << seed << ", schedule " << schedule << ": " << error.what() << "\nafter\n"
                        << lines_of(steps.schedule.trace()) << print(c.kernel);
          break;
        }
        const std::optional<Refusal> refusal = steps.take_refusal();
        if (!refusal) continue;
        Row& row = table[steps.last_reason()];
        ++row.times;
        if (row.audited == each) continue;
        ++row.audited;
        row.right += audit.is_true(*refusal);
      }
    }
  }
  Row all;
  int seldom = 0;
  for (const auto& [message, row] : table) {
    all.times += row.times, all.audited += row.audited, all.right += row.right;
    seldom += row.times < 100;
  }
  std::cout << of << ": " << all.times << " refusals of " << table.size() << " messages, " << seldom
            << " of them less than 100 times; " << all.audited << " audited: " << all.right << " true, "
            << all.audited - all.right << " gaps\n";
  if (std::getenv("GRADLOOM_AUDIT_TABLE")) {
    std::cout << "message | times | audited | true | gap\n";
    for (const auto& [message, row] : table)
      std::cout << message << " | " << row.times << " | " << row.audited << " | " << row.right << " | "
                << row.audited - row.right << "\n";
  }
  EXPECT_GT(all.times, runs);
  return all;
}

TEST(Refusals, OfRandomKernelsAreTrueOrCountedAsGaps) {
  const Row all = audit("random kernels", [](uint64_t seed) { return RandomIr(seed).build(); });
  EXPECT_GT(2 * all.right, all.audited);
}

// Their refusals are of forms that nothing here can force: more gaps.
TEST(Refusals, OfTheKernelsOfTextsAreTrueOrCountedAsGaps) {
  const Row all = audit("kernels of tests/text", text_case);
  EXPECT_GT(4 * all.right, all.audited);
}

}  // namespace
}  // namespace gradloom::ir::testing
