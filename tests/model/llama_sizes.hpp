// Models of Llama 3's shape: its vocabulary and key and value heads.
#pragma once

#include "config/run_file.hpp"

namespace lockstep::model {

inline config::ModelConfig llama(int64_t layers, int64_t hidden, int64_t ffn, int64_t heads) {
  config::ModelConfig m;
  m.layers = layers;
  m.hidden = hidden;
  m.ffn = ffn;
  m.heads = heads;
  m.kv_heads = 8;
  m.vocab = 128256;
  return m;
}

}  // namespace lockstep::model
