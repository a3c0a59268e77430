#include "runtime/tuning/tuning_entry.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace gradloom {
namespace {

constexpr std::string_view head = "gradloom tuning ", step_indent = "  ", milliseconds = " ms", of_the_rules = "rules";

// Lines of a text, with their places.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  bool more() const { return at_ < text_.size(); }
  size_t at() const { return at_; }
  int number() const { return number_; }
  std::string_view peek() const {
    std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
  std::string_view take() {
    const std::string_view line = peek();
    const size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
    ++number_;
    return line;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int number_ = 1;
};

bool between_entries(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos || line[first] == '#';
}

// Reads one entry; the first fault ends it.
class Reader {
 public:
  explicit Reader(Lines& lines) : lines_(lines) {}

  std::string read(TuningEntry& entry) {
    const std::string_view first = lines_.take();
    if (!first.starts_with(head)) return "it does not begin with \"gradloom tuning\"";
    if (first.substr(head.size()) != std::to_string(tuning_format))
      return fmt::format("it is of format {}, expected {}", first.substr(head.size()), tuning_format);
    entry.op = field("op");
    entry.call = field("call");
    entry.machine = field("machine");
    kernel("rules", entry.rules, entry.rules_ms);
    kernel("best", entry.best, entry.best_ms);
    if (entry.best == of_the_rules) {
      entry.best.clear();
    } else {
      entry.nest = field("nest");
      while (fault_.empty() && lines_.more() && lines_.peek().starts_with(step_indent))
        entry.trace.emplace_back(lines_.take().substr(step_indent.size()));
    }
    if (fault_.empty() && (!lines_.more() || lines_.peek() != "end")) fault_ = "it lacks its \"end\"";
    if (fault_.empty()) lines_.take();
    return fault_;
  }

 private:
  std::string field(std::string_view name) {
    const std::string lead = fmt::format("{}: ", name);
    if (fault_.empty() && (!lines_.more() || !lines_.peek().starts_with(lead)))
      fault_ = fmt::format("it lacks its \"{}\"", name);
    return fault_.empty() ? std::string(lines_.take().substr(lead.size())) : std::string();
  }

  // "strip, 5.43 ms"
  void kernel(std::string_view name, std::string& strategy, double& ms) {
    const std::string text = field(name);
    if (!fault_.empty()) return;
    const size_t comma = text.rfind(", ");
    const char *begin = text.data() + comma + 2, *end = text.data() + text.size() - milliseconds.size();
    if (comma == std::string::npos || comma == 0 || !text.ends_with(milliseconds) || begin > end ||
        std::from_chars(begin, end, ms).ptr != end) {
      fault_ = fmt::format("its \"{}\" is \"{}\", expected a strategy and a time, as \"strip, 5.43 ms\"", name, text);
      return;
    }
    strategy = text.substr(0, comma);
  }

  Lines& lines_;
  std::string fault_;
};

}  // namespace

std::string print(const TuningEntry& e) {
  std::string text = fmt::format("{}{}\nop: {}\ncall: {}\nmachine: {}\nrules: {}, {:.4g} ms\nbest: {}, {:.4g} ms\n",
                                 head, tuning_format, e.op, e.call, e.machine, e.rules, e.rules_ms,
                                 e.adopted() ? e.best : of_the_rules, e.best_ms);
  if (e.adopted()) {
    text += fmt::format("nest: {}\n", e.nest);
    for (const std::string& step : e.trace) text += fmt::format("{}{}\n", step_indent, step);
  }
  return text + "end\n";
}

std::vector<TuningPart> parse_tuning_log(std::string_view text) {
  std::vector<TuningPart> parts;
  Lines lines(text);
  while (lines.more()) {
    if (between_entries(lines.peek())) {
      lines.take();
      continue;
    }
    TuningPart part{.line = lines.number(), .begin = lines.at()};
    part.fault = Reader(lines).read(part.entry);
    if (!part.fault.empty())
      while (lines.more() && !lines.peek().starts_with(head)) lines.take();
    part.end = lines.at();
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace gradloom
