#include "train/harness.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <mutex>
#include <sstream>
#include <thread>

#include "comm/local_world.hpp"
#include "nn/threads.hpp"

namespace lockstep::tests {

std::string describe(const LayoutChoice& c) {
  std::ostringstream text;
  text << "tp" << c.tp << (c.sequence_parallel ? "" : " without sequence parallel") << " pp" << c.pp << " dp"
       << c.dp << " v" << c.virtual_stages << " " << config::to_string(c.schedule) << " micro-batch "
       << c.micro_batch << " layers less " << c.first_stage_less_layers << " " << c.last_stage_less_layers;
  return text.str();
}

config::RunFile small_run(const LayoutChoice& c, config::Dtype dtype, int64_t steps) {
  config::RunFile run;
  run.name = "parity";
  run.model.layers = 4;
  run.model.hidden = 64;
  run.model.ffn = 96;
  run.model.heads = 8;
  run.model.kv_heads = 4;
  run.model.vocab = 256;
  run.parallel.tp = c.tp;
  run.parallel.pp = c.pp;
  run.parallel.dp = c.dp;
  run.parallel.virtual_stages = c.virtual_stages;
  run.parallel.schedule = c.schedule;
  run.parallel.sequence_parallel = c.sequence_parallel;
  run.parallel.micro_batch = c.micro_batch;
  run.parallel.first_stage_less_layers = c.first_stage_less_layers;
  run.parallel.last_stage_less_layers = c.last_stage_less_layers;
  run.train.sequence = 32;
  run.train.global_batch = 8;
  run.train.steps = steps;
  run.train.dtype = dtype;
  run.train.lr = 3e-3;
  run.train.warmup = 4;
  run.train.eval_sequences = 13;
  run.data.text = std::string(LOCKSTEP_SOURCE_DIR) + "/data/sotu";
  run.data.held_out = {"2016_barack_obama_d"};
  return run;
}

namespace {

// Copies what this rank owns of the reduced gradients into the whole parameters. What no rank owns stays NaN;
// ranks that hold the same element must hold the same bits.
void collect_gradients(const train::Trainer& trainer, std::map<std::string, at::Tensor>& out) {
  for (const auto& chunk : trainer.executor().chunks()) {
    const train::FlatLayout& flat = chunk.model->flat();
    const at::Tensor shard = chunk.state->gradient().to(at::kDouble);
    const int64_t begin = chunk.state->begin();
    const int64_t end = begin + flat.shard();
    for (const train::FlatEntry& e : flat.entries()) {
      at::Tensor& whole = out[e.parameter.name];
      if (!whole.defined()) whole = at::full({e.parameter.count()}, std::nan(""), at::kDouble);
      for (int64_t i = std::max(begin, e.offset); i < std::min(end, e.offset + e.count); ++i) {
        double& element = whole.data_ptr<double>()[e.global_index(i - e.offset)];
        const double value = shard.data_ptr<double>()[i - begin];
        if (!std::isnan(element)) {
          EXPECT_EQ(element, value) << e.parameter.name;
        }
        element = value;
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
    if (failure_) std::rethrow_exception(failure_);
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
    }
  }

  void run_rank(comm::World& world) {
    auto programs = parallel::build_step_programs(parallel::Layout(run_));
    if (options_.mutate) options_.mutate(programs, world.rank());
    train::Trainer trainer(run_, world, std::move(programs));
    for (int64_t step = 1; step <= options_.steps; ++step) {
      trainer.log().set_recording(options_.record && step == options_.steps);
      const train::StepReport report = trainer.step();
      if (world.rank() == 0) {
        result_.losses.push_back(report.loss);
        result_.grad_norms.push_back(report.grad_norm);
      }
    }
    trainer.log().set_recording(false);
    const double eval_loss = options_.evaluate ? trainer.evaluate().loss : 0;
    const train::WeightsHash hash = trainer.weights_hash();
    const std::lock_guard lock(mutex_);
    if (options_.gradients) collect_gradients(trainer, result_.gradients);
    if (options_.record) result_.ranks.push_back({world.rank(), trainer.groups().at, trainer.log().take()});
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
