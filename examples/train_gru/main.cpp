// Trains a character-level language model, a GRU, with gradloom alone: the ops GRUTraining, GRUGrad, GatherGrad and
// BroadcastGrad, and a few loop nests of its own (nests.h). Read next: model.cpp.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>

#include "adam.h"
#include "check_gradient.h"
#include "losses.h"
#include "model.h"
#include "progress.h"
#include "sample.h"

namespace train_gru {
namespace {

struct Options {
  std::string text = "/usr/share/common-licenses/GPL-3", losses;
  Sizes sizes;
  int64_t steps = 1000, sample = 500;
  double rate = 0.01, sharpness = 2;
  int64_t seed = 1;
  int threads = 0;
  bool check_gradient = false;
};

// The settings that reference.py needs to train the same model.
std::vector<std::pair<std::string, std::string>> settings(const Options& o) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  return {{"text", o.text},
          {"seed", text(o.seed)},
          {"embedding", text(o.sizes.embedding)},
          {"hidden", text(o.sizes.hidden)},
          {"sequence", text(o.sizes.sequence)},
          {"batch", text(o.sizes.batch)},
          {"steps", text(o.steps)},
          {"rate", text(o.rate)},
          {"averaged", text(Losses::averaged)}};
}

void train(Runtime& runtime, Options options) {
  const Text text = read_text(options.text);
  Sizes& sizes = options.sizes;
  sizes.vocabulary = text.vocabulary();
  Random random(static_cast<uint64_t>(options.seed));
  Model model(runtime, DType::f32, sizes);
  draw(model.parameters, random);
  Adam optimizer(runtime, model.parameters, model.gradient, options.rate, options.steps);
  fmt::print("{} characters, {} different; {} parameters; {}\n", text.tokens.size(), sizes.vocabulary,
             model.parameters.count(), runtime.target_name());

  Losses losses(options.losses, settings(options));
  {
    Progress progress(options.steps);
    for (int64_t step = 0; step < options.steps; ++step) {
      draw(model.batch, text, random);
      losses.add(model.loss());
      model.differentiate();
      optimizer.step();
      progress.show(step + 1, losses.mean());
    }
  }
  losses.finish();
  fmt::print("final loss {:.6f}: the mean of the last {} steps, in nats a character\n", losses.mean(),
             std::min<int64_t>(options.steps, Losses::averaged));
  if (options.sample > 0)
    fmt::print("\n{}\n",
               sample(runtime, model.parameters, sizes, text.characters, options.sample, options.sharpness, random));
}

int fail(int status, const std::string& message) {
  fmt::print(stderr, "train_gru: {}\n", message);
  return status;
}

}  // namespace
}  // namespace train_gru

int main(int argc, char** argv) {
  using namespace train_gru;
  Options o;
  const CLI::Range size(1, 1 << 20), rate(1e-6, 1.0), sharpness(0.01, 100.0);
  CLI::App app("Trains a character-level language model on a text, then writes a text of its own.", "train_gru");
  app.add_option("--text", o.text, "file to learn from")->capture_default_str();
  app.add_option("--steps", o.steps, "training steps, one batch each")->check(size)->capture_default_str();
  app.add_option("--hidden", o.sizes.hidden, "size of the GRU's state")->check(size)->capture_default_str();
  app.add_option("--embedding", o.sizes.embedding, "size of a character's vector")->check(size)->capture_default_str();
  app.add_option("--sequence", o.sizes.sequence, "characters in a window of the text")
      ->check(size)
      ->capture_default_str();
  app.add_option("--batch", o.sizes.batch, "windows in a batch")->check(size)->capture_default_str();
  app.add_option("--rate", o.rate, "Adam's learning rate at the start; it falls linearly to 0")
      ->check(rate)
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the start weights, the batches and the sample")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "0: as many as there are; the result is the same")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--sample", o.sample, "characters to write at the end")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--sharpness", o.sharpness, "above 1: the sample prefers likely characters")
      ->check(sharpness)
      ->capture_default_str();
  app.add_option("--losses", o.losses,
                 "file for the settings and the loss of each step: what reference.py compares with");
  app.add_flag("--check-gradient", o.check_gradient,
               "instead of training: the model's gradient against finite differences");
  try {
    app.parse(argc, argv);
    Runtime runtime({.threads = o.threads});
    if (o.check_gradient) return check_gradient(runtime, o.seed) ? 0 : fail(1, "the gradient is wrong");
    train(runtime, o);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return fail(2, fmt::format("{} (see `train_gru --help`)", error.what()));
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
