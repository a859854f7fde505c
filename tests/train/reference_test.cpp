// The independent truth of a whole run: the same model written plainly, differentiated by LibTorch's autograd
// and trained by LibTorch's AdamW, clipped by its clip_grad_norm_, on the same batches.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <numbers>

#include "data/batch_prefetcher.hpp"
#include "data/sampler.hpp"
#include "nn/reference.hpp"
#include "train/harness.hpp"
#include "train/initial_weights.hpp"

namespace lockstep::tests {
namespace {

using nn::test::Case;

class PlainModel {
 public:
  explicit PlainModel(const config::RunFile& run) : run_(run) {
    for (const model::Parameter& p : model::model_parameters(run.model)) {
      at::Tensor w = at::ones({p.count()}, at::kDouble);
      for (int64_t i = 0; p.init_std > 0 && i < p.count(); ++i) {
        const double normal = train::initial_normal(static_cast<uint64_t>(run.train.seed), p.name, i);
        w.data_ptr<double>()[i] = p.init_std * normal;
      }
      if (p.cols > 1) w = w.view({p.rows, p.cols});
      weights_[p.name] = w.requires_grad_();
    }
  }

  // Sum of the losses over [n, sequence] tokens.
  at::Tensor loss(const std::vector<int64_t>& inputs, const std::vector<int64_t>& targets) const {
    const int64_t n = static_cast<int64_t>(inputs.size()) / run_.train.sequence;
    const Case shape{.micro_batch = n,
                     .sequence = run_.train.sequence,
                     .heads = run_.model.heads,
                     .kv_heads = run_.model.kv_heads,
                     .head_dim = run_.model.head_dim(),
                     .ffn = run_.model.ffn,
                     .vocab = run_.model.vocab};
    at::Tensor x = weight("model.embed_tokens.weight").index_select(0, at::tensor(inputs, at::kLong));
    for (int64_t i = 0; i < run_.model.layers; ++i) {
      x = nn::test::reference_layer(shape, layer("model.layers." + std::to_string(i) + "."), x);
    }
    return nn::test::reference_head({weight("model.norm.weight"), weight("lm_head.weight")}, x,
                                    at::tensor(targets, at::kLong));
  }

  // Matrices decay, norms do not.
  std::vector<at::Tensor> parameters(bool norms) const {
    std::vector<at::Tensor> out;
    for (const auto& [name, w] : weights_) {
      if ((w.dim() == 1) == norms) out.push_back(w);
    }
    return out;
  }

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  nn::LayerTensors layer(const std::string& p) const {
    return {weight(p + "input_layernorm.weight"),
            at::cat({weight(p + "self_attn.q_proj.weight"), weight(p + "self_attn.k_proj.weight"),
                     weight(p + "self_attn.v_proj.weight")}),
            weight(p + "self_attn.o_proj.weight"),
            weight(p + "post_attention_layernorm.weight"),
            at::cat({weight(p + "mlp.gate_proj.weight"), weight(p + "mlp.up_proj.weight")}),
            weight(p + "mlp.down_proj.weight")};
  }

  const config::RunFile& run_;
  std::map<std::string, at::Tensor> weights_;
};

torch::optim::AdamW adamw_for(const PlainModel& model, const config::TrainConfig& train) {
  const auto group = [&](bool norms) {
    auto options = std::make_unique<torch::optim::AdamWOptions>(train.lr);
    options->betas({train.beta1, train.beta2}).eps(train.eps).weight_decay(norms ? 0 : train.weight_decay);
    return torch::optim::OptimizerParamGroup(model.parameters(norms), std::move(options));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.push_back(group(false));
  groups.push_back(group(true));
  return torch::optim::AdamW(std::move(groups));
}

TEST(Reference, ARunIsPlainTraining) {
  constexpr int64_t steps = 8;
  config::RunFile run = small_run({.micro_batch = 2}, config::Dtype::fp64, steps);
  run.model.rope_theta = nn::test::rope_theta;
  run.model.norm_eps = nn::test::norm_eps;
  run.train.grad_clip = 2.0;  // some steps are clipped, some are not
  const JobResult job = run_job(run, {.steps = steps, .evaluate = true});

  const data::Corpus corpus = data::load_corpus(
      {.text = run.data.text, .held_out = run.data.held_out, .sequence = run.train.sequence});
  const data::Sampler sampler(corpus.training, run.train.sequence, static_cast<uint64_t>(run.train.seed));
  const auto fill = [&](int64_t sample, const data::SequenceSpans& spans) { sampler.fill(sample, spans); };
  config::RunFile whole_batch = run;
  whole_batch.parallel.micro_batch = run.train.global_batch;
  const PlainModel model(run);
  torch::optim::AdamW optimizer = adamw_for(model, run.train);
  auto all = model.parameters(false);
  for (const at::Tensor& norm : model.parameters(true)) all.push_back(norm);

  int clipped = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t batch = run.train.global_batch;
    const data::StepBatch whole = data::make_step_batch(fill, whole_batch, {}, step);
    optimizer.zero_grad();
    const at::Tensor loss = model.loss(whole.micro_batches[0].inputs, whole.micro_batches[0].targets) /
                            (batch * run.train.sequence);
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(all, run.train.grad_clip);
    clipped += norm > run.train.grad_clip ? 1 : 0;
    // Warm-up to step 4, then half a cosine that ends at the least rate in step 8.
    const double done = static_cast<double>(step + 1);
    const double least = run.train.lr * run.train.lr_min_ratio;
    const double lr =
        done <= 4 ? run.train.lr * done / 4
                  : least + (run.train.lr - least) * (1 + std::cos(std::numbers::pi * (done - 4) / 4)) / 2;
    for (auto& group : optimizer.param_groups()) {
      static_cast<torch::optim::AdamWOptions&>(group.options()).lr(lr);
    }
    optimizer.step();
    const auto i = static_cast<size_t>(step);
    EXPECT_NEAR(job.losses.at(i) / loss.item<double>(), 1, 1e-10) << "step " << step + 1;
    EXPECT_NEAR(job.grad_norms.at(i) / norm, 1, 1e-9) << "step " << step + 1;
  }
  EXPECT_GT(clipped, 0) << "the test must see a step that is clipped";
  EXPECT_LT(clipped, steps) << "and one that is not";

  std::vector<int64_t> inputs, targets;
  for (int64_t i = 0; i < run.train.eval_sequences * run.train.sequence; ++i) {
    inputs.push_back(corpus.held_out.tokens.at(static_cast<size_t>(i)));
    targets.push_back(corpus.held_out.tokens.at(static_cast<size_t>(i + 1)));
  }
  const double held_out = model.loss(inputs, targets).item<double>() / static_cast<double>(inputs.size());
  EXPECT_NEAR(job.eval_loss / held_out, 1, 1e-10);
}

}  // namespace
}  // namespace lockstep::tests
