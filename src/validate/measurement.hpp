// One row of a CSV of published measurements, as it stands there: nothing is filled in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::validate {

// Columns: source, model, layers, hidden, heads, kv_heads, ffn, vocab, seq (tokens), gpu, n_gpus, tp, cp, pp,
// vpp (virtual stages), dp, micro_batch (sequences), global_batch_seqs, recompute, zero_stage, step_time_s,
// tflops_per_gpu (TFLOP/s), tflops_kind, mfu_pct (percent), memory_gib (GiB of the fullest GPU), params_b
// (10^9 parameters, which the model's shapes must have). notes are for readers. An empty cell is unknown.
// Texts are escaped (base/terminal_text): they go to terminals.
struct Measurement {
  int row = 0;   // of the file, from 1, without the header
  int line = 0;  // of the file
  std::string source, model, gpu, recompute, tflops_kind;
  std::optional<int64_t> layers, hidden, heads, kv_heads, ffn, vocab, sequence;
  std::optional<int64_t> gpus, tp, cp, pp, virtual_stages, dp, micro_batch, global_batch, zero;
  std::optional<double> step_seconds, tflops_per_gpu, mfu_percent, memory_gib, billion_parameters;
  uint64_t hash = 0;                    // FNV-1a, 64 bits, of the row's cells joined by commas
  std::vector<std::string> unreadable;  // what is wrong with which cells, one clause each
};

struct Measurements {
  std::string name;  // of the file
  std::vector<Measurement> rows;
  std::vector<std::string> unknown_columns;  // which are not read
};

// UsageError for text that is no CSV, or lacks a column that every row needs (with the nearest that it has).
// Bad cells are no error: they stand in `unreadable`.
Measurements read_measurements(std::string_view text, const std::string& name);

// The published rows that Lockstep carries (data/published/measurements.csv).
Measurements own_measurements();

// The rows that are kept out of fitting: of each source a fifth of its `rows` (rounded, at least one of three
// or more), those with the smallest hash. Returns their Measurement::row.
std::vector<int> held_out(const std::vector<const Measurement*>& rows);

}  // namespace lockstep::validate
