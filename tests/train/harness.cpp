#include "train/harness.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <thread>

#include "comm/local_world.hpp"
#include "nn/threads.hpp"

namespace lockstep::tests {

std::string describe(const LayoutChoice& c) {
  std::ostringstream text;
  text << "tp" << c.tp << (c.sequence_parallel ? "" : " without sequence parallel") << " cp" << c.cp << " pp"
       << c.pp << " dp" << c.dp << " v" << c.virtual_stages << " " << config::to_string(c.schedule) << " zero"
       << c.zero << " micro-batch " << c.micro_batch;
  const auto add = [&](bool differs, const std::string& what) {
    if (differs) text << " " << what;
  };
  add(c.replicas > 0, "replicas " + std::to_string(c.replicas));
  add(c.first_stage_less_layers + c.last_stage_less_layers > 0,
      "layers less " + std::to_string(c.first_stage_less_layers) + " " +
          std::to_string(c.last_stage_less_layers));
  add(c.layer_split == config::LayerSplit::cost, "split by cost");
  add(!c.reshard_after_forward, "no reshard");
  add(c.gradient_scatter == config::GradientScatter::micro_batch, "scatter every micro-batch");
  add(c.gathered_input == config::GatheredInput::keep, "gathered inputs kept");
  for (const std::string& op : c.recompute) text << " recompute " << op;
  add(c.recompute_every > 1, "every " + std::to_string(c.recompute_every));
  add(c.layers != 4, std::to_string(c.layers) + " layers");
  add(c.kv_heads != 4, std::to_string(c.kv_heads) + " kv heads");
  add(c.vocab != 256, "vocab " + std::to_string(c.vocab));
  add(c.tie_embeddings, "tied");
  add(c.document_mask, "document mask");
  return text.str();
}

LayoutChoice alone(const LayoutChoice& c) {
  LayoutChoice one;
  one.layers = c.layers;
  one.kv_heads = c.kv_heads;
  one.vocab = c.vocab;
  one.tie_embeddings = c.tie_embeddings;
  one.document_mask = c.document_mask;
  return one;
}

namespace {

// One address cut into documents of 1 to 60 bytes, so that every window of 32 holds borders, and one held
// out.
std::string short_documents() {
  static const std::string folder = [] {
    namespace fs = std::filesystem;
    const fs::path source = fs::path(LOCKSTEP_SOURCE_DIR) / "data/sotu";
    const fs::path to = fs::path(testing::TempDir()) / ("short_documents_" + std::to_string(getpid()));
    fs::create_directories(to);
    fs::copy_file(source / "2016_barack_obama_d.txt", to / "2016_barack_obama_d.txt",
                  fs::copy_options::overwrite_existing);
    std::ifstream in(source / "1961_john_f_kennedy_d.txt", std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    size_t at = 0;
    for (size_t i = 0; i < 500 && at < text.size(); ++i) {
      const size_t length = 1 + i * 37 % 60;
      std::ofstream(to / ("d" + std::to_string(1000 + i) + ".txt"), std::ios::binary)
          << text.substr(at, length);
      at += length;
    }
    return to.string();
  }();
  return folder;
}

}  // namespace

config::RunFile small_run(const LayoutChoice& c, config::Dtype dtype, int64_t steps) {
  config::RunFile run;
  run.name = "parity";
  run.model.layers = c.layers;
  run.model.hidden = 64;
  run.model.ffn = 96;
  run.model.heads = 8;
  run.model.kv_heads = c.kv_heads;
  run.model.vocab = c.vocab;
  run.model.tie_embeddings = c.tie_embeddings;
  config::ParallelConfig& p = run.parallel;
  p.tp = c.tp;
  p.cp = c.cp;
  p.pp = c.pp;
  p.dp = c.dp;
  p.virtual_stages = c.virtual_stages;
  p.schedule = c.schedule;
  p.sequence_parallel = c.sequence_parallel;
  p.micro_batch = c.micro_batch;
  p.first_stage_less_layers = c.first_stage_less_layers;
  p.last_stage_less_layers = c.last_stage_less_layers;
  p.layer_split = c.layer_split;
  p.replicas = c.replicas;
  p.zero = c.zero;
  p.reshard_after_forward = c.reshard_after_forward;
  p.gradient_scatter = c.gradient_scatter;
  p.gathered_input = c.gathered_input;
  p.recompute = c.recompute;
  p.recompute_every = c.recompute_every;
  run.data.document_mask = c.document_mask;
  run.train.sequence = 32;
  run.train.global_batch = 8;
  run.train.steps = steps;
  run.train.dtype = dtype;
  run.train.lr = 3e-3;
  run.train.warmup = 4;
  run.train.eval_sequences = 13;
  run.data.text = c.document_mask ? short_documents() : std::string(LOCKSTEP_SOURCE_DIR) + "/data/sotu";
  run.data.held_out = {"2016_barack_obama_d"};
  return run;
}

namespace {

// Copies what this rank owns of the reduced gradients into the whole parameters. What no rank owns stays NaN;
// ranks that hold the same element must hold the same bits.
void collect_gradients(train::Trainer& trainer, std::map<std::string, at::Tensor>& out) {
  for (const auto& chunk : trainer.executor().chunks()) {
    const at::Tensor owned = chunk->state().gradient().to(at::kDouble);
    for (const train::OwnedRange& range : chunk->state().ranges()) {
      for (const train::FlatEntry& e : chunk->model().flat().entries()) {
        at::Tensor& whole = out[e.parameter.name];
        if (!whole.defined()) whole = at::full({e.parameter.count()}, std::nan(""), at::kDouble);
        const int64_t end = std::min(range.flat + range.size, e.offset + e.valid);
        for (int64_t i = std::max(range.flat, e.offset); i < end; ++i) {
          double& element = whole.data_ptr<double>()[e.global_index(i - e.offset)];
          const double value = owned.data_ptr<double>()[i - range.flat + range.own];
          if (!std::isnan(element)) {
            EXPECT_EQ(element, value) << e.parameter.name;
          }
          element = value;
        }
      }
    }
  }
}

class Job {
 public:
  Job(const config::RunFile& run, const JobOptions& options)
      : run_(run),
        options_(options),
        arena_(comm::SharedArena::create(static_cast<int>(run.parallel.world_size()))) {}

  JobResult run() {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < arena_->world_size(); ++rank) {
      threads.emplace_back([this, rank] { guarded_rank(rank); });
    }
    for (std::thread& thread : threads) thread.join();
    if (failure_ && !options_.may_fail) std::rethrow_exception(failure_);
    return std::move(result_);
  }

 private:
  void guarded_rank(int rank) {
    comm::LocalWorld world(arena_, rank);
    try {
      const c10::InferenceMode inference;
      run_rank(world);
    } catch (const std::exception& error) {
      world.abort(error.what());
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      result_.failures[world.rank()] = error.what();
    }
  }

  void run_rank(comm::World& world) {
    train::Trainer trainer(run_, world, [&](const parallel::Layout& layout) {
      auto programs = parallel::build_step_programs(layout);
      if (options_.mutate) options_.mutate(programs, world.rank());
      return programs;
    });
    train::StepReport report;
    for (int64_t step = 1; step <= options_.steps; ++step) {
      if (options_.before_step) options_.before_step(trainer, step, world.rank());
      trainer.log().set_recording(options_.record && step == options_.steps);
      report = trainer.step();
      if (world.rank() == 0) {
        result_.reports.push_back(report);
        result_.losses.push_back(report.loss);
        result_.grad_norms.push_back(report.grad_norm);
      }
    }
    std::vector<nn::OpRecord> ops = trainer.log().take();
    trainer.log().set_recording(options_.record);
    const double eval_loss = options_.evaluate ? trainer.evaluate().loss : 0;
    trainer.log().set_recording(false);
    const train::WeightsHash hash = trainer.weights_hash();
    const std::lock_guard lock(mutex_);
    if (options_.after_last_step) options_.after_last_step(trainer, report, world.rank());
    if (options_.gradients) collect_gradients(trainer, result_.gradients);
    if (options_.record) {
      result_.ranks.push_back({world.rank(), trainer.groups().at, std::move(ops), trainer.log().take()});
    }
    if (world.rank() == 0) {
      result_.eval_loss = eval_loss;
      result_.hash = hash;
    }
  }

  config::RunFile run_;
  JobOptions options_;
  std::shared_ptr<comm::SharedArena> arena_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  JobResult result_;
};

}  // namespace

JobResult run_job(const config::RunFile& run, const JobOptions& options) {
  nn::compute_on_one_thread();
  return Job(run, options).run();
}

}  // namespace lockstep::tests
