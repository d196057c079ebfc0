"""Configurations of vLLM with the answers that the specification expects: a corpus of slotcheck 0.1.0.

Needs vLLM 0.33.0 and pytest, nothing else: no GPU, no weights, no network. `pytest test_corpus_rules_vllm.py` builds each
`VllmConfig` by its own constructors, in seconds, and asks how many slots it reserves and charges for a drafter. Each case
says which crossings it reaches and which small defects of 0.33.0 (`mutant file:line ...`) it finds. Written by
`slotcheck corpus export`; do not edit.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"
no_gpu = not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128")))
if no_gpu:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no GPU here, and none is needed
    os.environ["TRITON_INTERPRET"] = "1"

import vllm.config
from vllm.model_executor.models import registry
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

if no_gpu:  # model classes are inspected in this process, not in a new one each
    registry._run_in_subprocess = lambda inspect: inspect()

MODELS = json.loads(r'''{
 "LlamaForCausalLM-0": {
  "architectures": [
   "LlamaForCausalLM"
  ],
  "model_type": "llama",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "head_dim": 16,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "tie_word_embeddings": false,
  "torch_dtype": "float16"
 },
 "LlamaForCausalLM-1": {
  "architectures": [
   "LlamaForCausalLM"
  ],
  "model_type": "llama",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 1,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "head_dim": 16,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "tie_word_embeddings": false,
  "torch_dtype": "float16",
  "ptd_token_id": 127
 },
 "Gemma4AssistantForCausalLM-2": {
  "architectures": [
   "Gemma4AssistantForCausalLM"
  ],
  "model_type": "gemma4_assistant",
  "backbone_hidden_size": 64,
  "torch_dtype": "float16",
  "text_config": {
   "model_type": "gemma4_text",
   "hidden_size": 64,
   "intermediate_size": 128,
   "num_hidden_layers": 2,
   "num_attention_heads": 4,
   "num_key_value_heads": 4,
   "head_dim": 16,
   "vocab_size": 128,
   "vocab_size_per_layer_input": 0,
   "max_position_embeddings": 4096,
   "layer_types": [
    "full_attention",
    "full_attention"
   ],
   "hidden_size_per_layer_input": 0
  }
 },
 "Qwen3ForCausalLM-3": {
  "architectures": [
   "Qwen3ForCausalLM"
  ],
  "model_type": "qwen3",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 4,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "head_dim": 16,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "tie_word_embeddings": false,
  "torch_dtype": "float16"
 },
 "DFlashDraftModel-4": {
  "architectures": [
   "DFlashDraftModel"
  ],
  "model_type": "qwen3",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 1,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "head_dim": 16,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "tie_word_embeddings": false,
  "torch_dtype": "float16",
  "dflash_config": {
   "mask_token_id": 127,
   "target_layer_ids": [
    1,
    2
   ]
  }
 },
 "DeepseekV3ForCausalLM-5": {
  "architectures": [
   "DeepseekV3ForCausalLM"
  ],
  "model_type": "deepseek_v3",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "ptd_token_id": 127,
  "q_lora_rank": 32,
  "kv_lora_rank": 64,
  "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 16,
  "v_head_dim": 16,
  "n_routed_experts": 4,
  "n_shared_experts": 1,
  "num_experts_per_tok": 2,
  "moe_intermediate_size": 32,
  "n_group": 1,
  "topk_group": 1,
  "first_k_dense_replace": 1,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-05,
  "torch_dtype": "float16",
  "num_nextn_predict_layers": 1
 },
 "DeepseekV3ForCausalLM-6": {
  "architectures": [
   "DeepseekV3ForCausalLM"
  ],
  "model_type": "deepseek_v3",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "ptd_token_id": 127,
  "q_lora_rank": 32,
  "kv_lora_rank": 64,
  "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 16,
  "v_head_dim": 16,
  "n_routed_experts": 4,
  "n_shared_experts": 1,
  "num_experts_per_tok": 2,
  "moe_intermediate_size": 32,
  "n_group": 1,
  "topk_group": 1,
  "first_k_dense_replace": 1,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-05,
  "torch_dtype": "float16",
  "num_nextn_predict_layers": 3
 },
 "Qwen3DSparkModel-7": {
  "architectures": [
   "Qwen3DSparkModel"
  ],
  "model_type": "qwen3",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 1,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "head_dim": 16,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "tie_word_embeddings": false,
  "torch_dtype": "float16",
  "dflash_config": {
   "mask_token_id": 127,
   "target_layer_ids": [
    1,
    2
   ]
  },
  "markov_rank": 8,
  "markov_head_type": "vanilla",
  "block_size": 8
 },
 "Qwen3DSparkModel-8": {
  "architectures": [
   "Qwen3DSparkModel"
  ],
  "model_type": "qwen3",
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 1,
  "num_attention_heads": 4,
  "num_key_value_heads": 4,
  "head_dim": 16,
  "vocab_size": 128,
  "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "tie_word_embeddings": false,
  "torch_dtype": "float16",
  "dflash_config": {
   "mask_token_id": 127,
   "target_layer_ids": [
    1,
    2
   ]
  },
  "markov_rank": 8,
  "markov_head_type": "vanilla",
  "block_size": 8,
  "sample_from_anchor": false,
  "dspark_bonus_anchor": true
 }
}''')  # config.json by name; weights and tokenizers there are none

CASES = [json.loads(line) for line in r'''
{"name": "draft_model 054f5a111550", "why": ["mutant config/scheduler.py:319:12 operand: self.max_num_batched_tokens < max_model_len and not self.enable_chunked_prefill -> self.max_num_batched_tokens < max_model_len", "mutant config/scheduler.py:331:11 comparison: self.max_num_batched_tokens < self.max_num_seqs -> self.max_num_batched_tokens <= self.max_num_seqs", "mutant config/scheduler.py:339:12 comparison: self.max_num_active_seqs is not None -> self.max_num_active_seqs is None", "mutant config/scheduler.py:339:12 operand: self.max_num_active_seqs is not None and self.max_num_active_seqs > self.max_num_seqs -> self.max_num_active_seqs > self.max_num_seqs", "mutant config/vllm.py:615:16 comparison: self.speculative_config.num_speculative_tokens is not None -> self.speculative_config.num_speculative_tokens is None", "mutant config/vllm.py:617:12 return: return self.speculative_config.num_speculative_tokens -> return None", "reach rules: K 8", "reach rules: R 1", "reach rules: method draft_model parallel", "reach rules: refused budget"], "target": "LlamaForCausalLM-0", "drafter": "LlamaForCausalLM-1", "speculation": {"method": "draft_model", "num_speculative_tokens": 8, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 1, "max_num_seqs": 1, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "budget", "facts": {}}
{"name": "draft_model 0cd8eb03ee4b", "why": ["mutant config/scheduler.py:306:8 deletion: self.max_num_encoder_input_tokens = self.max_num_batched_tokens -> pass", "mutant config/scheduler.py:307:8 deletion: self.encoder_cache_size = self.max_num_batched_tokens -> pass", "mutant config/vllm.py:608:12 operand: self.max_concurrent_batches * self.scheduler_config.max_num_batched_tokens -> self.max_concurrent_batches", "mutant config/vllm.py:713:15 arithmetic: 1 + self.num_speculative_tokens -> 1 - self.num_speculative_tokens", "reach rules: K 5", "reach rules: method draft_model", "reach rules: place v2_added_rows", "reach rules: place v2_expanded_rows", "reach rules: threshold = decode rows - 1"], "target": "LlamaForCausalLM-0", "drafter": "LlamaForCausalLM-1", "speculation": {"method": "draft_model", "num_speculative_tokens": 5, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 5, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 5, "lookahead": 5, "prefill_lookahead": 0, "hash_lookahead": 0, "charged": 1, "scheduled": 2048, "active": null, "in_flight": 2048, "query_rows": 6, "eagle": false, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "extract_hidden_states 0f20079cf135", "why": ["mutant config/speculative.py:2014:11 comparison: self.rejection_sample_method == \"fly\" -> self.rejection_sample_method != 'fly'", "reach rules: method extract_hidden_states parallel"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "extract_hidden_states", "num_speculative_tokens": 1, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false, "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1]}}}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 13, "max_num_seqs": 7, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "active": null, "in_flight": 13, "query_rows": 2, "eagle": false, "block_drop": false, "runner": "V1", "overlap": false}}
{"name": "eagle 1be8176e5011", "why": ["reach rules: K 2", "reach rules: drop off by switch", "reach rules: hash off by caching", "reach rules: hash off by switch", "reach rules: method eagle parallel", "reach rules: overlap on V1", "reach rules: parallel", "reach rules: rows added and charged"], "target": "LlamaForCausalLM-0", "drafter": "LlamaForCausalLM-1", "speculation": {"method": "eagle", "num_speculative_tokens": 2, "parallel_drafting": true, "disable_eagle_block_drop": true, "disable_lookahead_block_hashes": true}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": true}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": false}]}, "refused": "", "facts": {"drafts": 2, "lookahead": 2, "prefill_lookahead": 1, "hash_lookahead": 0, "charged": 1, "scheduled": 2048, "active": null, "in_flight": 4096, "query_rows": 3, "eagle": true, "block_drop": false, "runner": "V1", "overlap": true}}
{"name": "custom_class 1fab71228402", "why": ["reach rules: K 14", "reach rules: method custom_class"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "custom_class", "num_speculative_tokens": 14, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false, "model": "a_package.AProposer"}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 5, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 14, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "charged": 0, "scheduled": 5, "active": null, "in_flight": 5, "query_rows": 15, "eagle": false, "block_drop": false, "runner": "V1", "overlap": false}}
{"name": "mtp_constant 224f60024b71", "why": ["reach rules: method mtp_constant"], "target": "LlamaForCausalLM-0", "drafter": "Gemma4AssistantForCausalLM-2", "speculation": {"method": "mtp", "num_speculative_tokens": 1, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 5, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 1, "prefill_lookahead": 1, "hash_lookahead": 1, "charged": 0, "scheduled": 5, "active": null, "in_flight": 5, "query_rows": 2, "eagle": true, "block_drop": true, "runner": "V2", "overlap": false}}
{"name": "dflash 2772aff9e26e", "why": ["reach rules: K 7", "reach rules: R 256", "reach rules: active kept", "reach rules: method dflash", "reach rules: not parallel", "reach rules: overlap on V2", "reach rules: own pass filled exactly", "reach rules: place backend_query_rows", "reach rules: place dispatcher_query_rows", "reach rules: place gdn_state_columns", "reach rules: place mamba_blocks", "reach rules: place mamba_blocks_replayed", "reach rules: place mamba_state_columns", "reach rules: place manager_rewritten", "reach rules: place nixl_back_off", "reach rules: place retained", "reach rules: place scheduler_block_drop", "reach rules: place scheduler_lookahead", "reach rules: place scheduler_prefill_lookahead", "reach rules: place scheduler_remaining_blocks", "reach rules: place scheduler_running", "reach rules: place scheduler_step_blocks", "reach rules: place v1_added_rows", "reach rules: place v1_pass_rows", "reach rules: place v1_query_rows", "reach rules: place v1_room", "reach rules: place v2_context_rows", "reach rules: place v2_own_rows", "reach rules: place v2_pass_rows", "reach rules: place warmup_blocks"], "target": "Qwen3ForCausalLM-3", "drafter": "DFlashDraftModel-4", "speculation": {"method": "dflash", "num_speculative_tokens": 7, "parallel_drafting": false, "disable_eagle_block_drop": true, "disable_lookahead_block_hashes": true}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": true}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 7, "lookahead": 8, "prefill_lookahead": 1, "hash_lookahead": 0, "charged": 0, "scheduled": 2048, "active": null, "in_flight": 4096, "query_rows": 8, "eagle": true, "block_drop": false, "runner": "V2", "overlap": true}}
{"name": "eagle3 2b035cd74a46", "why": ["reach rules: method eagle3 parallel"], "target": "LlamaForCausalLM-0", "drafter": "LlamaForCausalLM-1", "speculation": {"method": "eagle3", "num_speculative_tokens": 1, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2, "max_num_seqs": 1, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 1, "prefill_lookahead": 1, "hash_lookahead": 1, "charged": 0, "scheduled": 2, "active": null, "in_flight": 2, "query_rows": 2, "eagle": true, "block_drop": true, "runner": "V1", "overlap": false}}
{"name": "suffix 2cac7596ee46", "why": ["mutant config/vllm.py:639:25 operand: speculative_config.use_dspark() and not getattr( speculative ... mple_from_anchor\", True ) -> not getattr(speculative_config.draft_model_config.hf_config, 'sample_from_anchor', True)", "reach rules: method suffix parallel"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "suffix", "num_speculative_tokens": 1, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 4, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "active": null, "in_flight": 4, "query_rows": 2, "eagle": false, "block_drop": false, "runner": "V1", "overlap": false}}
{"name": "ngram_gpu 442504cffe8b", "why": ["reach rules: method ngram_gpu parallel"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "ngram_gpu", "num_speculative_tokens": 1, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 13, "max_num_seqs": 7, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "active": null, "in_flight": 13, "query_rows": 2, "eagle": false, "block_drop": false, "runner": "V1", "overlap": false}}
{"name": "eagle 48e334aaf312", "why": ["reach rules: K 11", "reach rules: hash off by connector", "reach rules: method eagle"], "target": "LlamaForCausalLM-0", "drafter": "LlamaForCausalLM-1", "speculation": {"method": "eagle", "num_speculative_tokens": 11, "parallel_drafting": false, "disable_eagle_block_drop": true, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}], "kv_transfer_config": ["KVTransferConfig", {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}]}, "refused": "", "facts": {"drafts": 11, "lookahead": 11, "prefill_lookahead": 1, "hash_lookahead": 0, "charged": 0, "scheduled": 2048, "active": null, "in_flight": 2048, "query_rows": 12, "eagle": true, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "suffix 4a20648bb02c", "why": ["reach rules: K 9", "reach rules: method suffix", "reach rules: refused overlap"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "suffix", "num_speculative_tokens": 9, "parallel_drafting": false, "disable_eagle_block_drop": true, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": true}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}], "kv_transfer_config": ["KVTransferConfig", {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}]}, "refused": "overlap", "facts": {}}
{"name": "extract_hidden_states 5bb4662e0c0f", "why": ["reach rules: K 15", "reach rules: method extract_hidden_states"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "extract_hidden_states", "num_speculative_tokens": 15, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false, "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [1]}}}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 6, "max_num_seqs": 7, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "seqs", "facts": {}}
{"name": "eagle3 5e669ad07185", "why": ["reach rules: K 4", "reach rules: R 7", "reach rules: T = lookahead", "reach rules: T = padded decode - 1", "reach rules: method eagle3", "reach rules: refused seqs"], "target": "LlamaForCausalLM-0", "drafter": "LlamaForCausalLM-1", "speculation": {"method": "eagle3", "num_speculative_tokens": 4, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 4, "max_num_seqs": 7, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "seqs", "facts": {}}
{"name": "mtp 66d1a2bebd7c", "why": ["reach rules: G given", "reach rules: K 3", "reach rules: hash lookahead", "reach rules: method mtp"], "target": "DeepseekV3ForCausalLM-5", "drafter": null, "speculation": {"method": "mtp", "num_speculative_tokens": 3, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": 1, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 3, "lookahead": 3, "prefill_lookahead": 1, "hash_lookahead": 1, "charged": 0, "scheduled": 1, "active": null, "in_flight": 2048, "query_rows": 4, "eagle": true, "block_drop": true, "runner": "V2", "overlap": false}}
{"name": "ngram 6ed920250fee", "why": ["reach rules: K 16", "reach rules: method ngram parallel"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "ngram", "num_speculative_tokens": 16, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 13, "max_num_seqs": 7, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 16, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "active": null, "in_flight": 13, "query_rows": 17, "eagle": false, "block_drop": false, "runner": "V1", "overlap": false}}
{"name": "mtp 84efc11c8d88", "why": ["reach rules: method mtp parallel"], "target": "DeepseekV3ForCausalLM-5", "drafter": null, "speculation": {"method": "mtp", "num_speculative_tokens": 1, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 5, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 1, "prefill_lookahead": 1, "hash_lookahead": 1, "charged": 0, "scheduled": 5, "active": null, "in_flight": 5, "query_rows": 2, "eagle": true, "block_drop": true, "runner": "V1", "overlap": false}}
{"name": "mtp_modules b2e996a9f710", "why": ["reach rules: K 13", "reach rules: method mtp_modules parallel", "reach rules: refused modules"], "target": "DeepseekV3ForCausalLM-6", "drafter": null, "speculation": {"method": "mtp", "num_speculative_tokens": 13, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "modules", "facts": {}}
{"name": "diffusion b899ceb3210c", "why": ["reach rules: refused threshold"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": null, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 257, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}], "diffusion_config": ["DiffusionConfig", {"canvas_length": 1}]}, "refused": "threshold", "facts": {}}
{"name": "mtp_modules b9a3dadec32a", "why": ["mutant config/speculative.py:2189:11 comparison: self.method != \"mtp\" -> self.method == 'mtp'", "mutant config/speculative.py:2189:35 comparison: self.draft_model_config is None -> self.draft_model_config is not None", "mutant config/speculative.py:2194:8 return: return min(num_mtp_layers, self.num_speculative_tokens) > 1 -> return None", "reach rules: K 6", "reach rules: hash lookahead of several modules", "reach rules: method mtp_modules", "reach rules: place v2_rewritten", "reach rules: threshold = decode rows"], "target": "DeepseekV3ForCausalLM-6", "drafter": null, "speculation": {"method": "mtp", "num_speculative_tokens": 6, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 7, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 6, "lookahead": 6, "prefill_lookahead": 6, "hash_lookahead": 6, "charged": 0, "scheduled": 2048, "active": null, "in_flight": 2048, "query_rows": 7, "eagle": true, "block_drop": true, "runner": "V2", "overlap": false}}
{"name": "diffusion c7e866a4da6b", "why": ["mutant config/scheduler.py:355:11 comparison: self.long_prefill_token_threshold > max_model_len -> self.long_prefill_token_threshold >= max_model_len", "reach rules: threshold = max_model_len"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": null, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 256, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}], "diffusion_config": ["DiffusionConfig", {"canvas_length": 1}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "charged": 0, "scheduled": null, "active": null, "in_flight": 2048, "eagle": false, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "ngram_gpu d6d127bee511", "why": ["reach rules: A given", "reach rules: K 1", "reach rules: method ngram_gpu", "reach rules: refused active"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "ngram_gpu", "num_speculative_tokens": 1, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": 2047, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "active", "facts": {}}
{"name": "diffusion dbb97e9e27f0", "why": ["mutant config/vllm.py:620:16 comparison: self.diffusion_config.canvas_length is not None -> self.diffusion_config.canvas_length is None", "reach rules: method diffusion"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": null, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 5, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}], "diffusion_config": ["DiffusionConfig", {"canvas_length": 1}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "charged": 0, "scheduled": null, "active": null, "in_flight": 5, "eagle": false, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "custom_class e1138f9cc29d", "why": ["reach rules: method custom_class parallel"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "custom_class", "num_speculative_tokens": 1, "parallel_drafting": true, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false, "model": "a_package.AProposer"}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 1, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "seqs", "facts": {}}
{"name": "dspark f08caea093f4", "why": ["mutant config/speculative.py:2129:41 logic: self.use_dflash() or self.use_dspark() -> self.use_dflash() and self.use_dspark()", "mutant config/vllm.py:2379:15 operand: spec.use_dflash() or spec.use_dspark() -> spec.use_dflash()", "reach rules: K 10", "reach rules: R 2", "reach rules: T = lookahead + 1", "reach rules: T = padded decode", "reach rules: active clamped", "reach rules: method dspark", "reach rules: place dspark_index_width"], "target": "Qwen3ForCausalLM-3", "drafter": "Qwen3DSparkModel-7", "speculation": {"method": "dspark", "num_speculative_tokens": 10, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 11, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 10, "lookahead": 10, "prefill_lookahead": 1, "hash_lookahead": 0, "charged": 0, "scheduled": 11, "active": 1, "in_flight": 11, "query_rows": 11, "eagle": true, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "none f116ec7849ea", "why": ["reach rules: method none"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": null, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 1, "max_num_seqs": 1, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 0, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "charged": 0, "scheduled": null, "active": null, "in_flight": 1, "query_rows": 1, "eagle": false, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "ngram faf8c983ce23", "why": ["reach rules: K 12", "reach rules: method ngram"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": {"method": "ngram", "num_speculative_tokens": 12, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 12, "max_num_seqs": 1, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 12, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "charged": 0, "scheduled": 12, "active": null, "in_flight": 12, "query_rows": 13, "eagle": false, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "none fb570bcfdad1", "why": ["mutant config/scheduler.py:339:12 operand: self.max_num_active_seqs is not None and self.max_num_active_seqs > self.max_num_seqs -> self.max_num_active_seqs is not None", "mutant config/scheduler.py:340:16 comparison: self.max_num_active_seqs > self.max_num_seqs -> self.max_num_active_seqs >= self.max_num_seqs"], "target": "LlamaForCausalLM-0", "drafter": null, "speculation": null, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 2048, "max_num_seqs": 256, "max_num_scheduled_tokens": null, "max_num_active_seqs": 256, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 0, "lookahead": 0, "prefill_lookahead": 0, "hash_lookahead": 0, "charged": 0, "scheduled": null, "active": 256, "in_flight": 2048, "query_rows": 1, "eagle": false, "block_drop": false, "runner": "V2", "overlap": false}}
{"name": "dspark_fill_in fcac659e06d7", "why": ["mutant config/vllm.py:642:11 operand: speculative_config.use_dflash() or dspark_fill_in -> speculative_config.use_dflash()", "reach rules: method dspark_fill_in"], "target": "Qwen3ForCausalLM-3", "drafter": "Qwen3DSparkModel-8", "speculation": {"method": "dspark", "num_speculative_tokens": 1, "parallel_drafting": false, "disable_eagle_block_drop": false, "disable_lookahead_block_hashes": false}, "scheduler": {"max_model_len": 256, "is_encoder_decoder": false, "max_num_batched_tokens": 3, "max_num_seqs": 2, "max_num_scheduled_tokens": null, "max_num_active_seqs": null, "long_prefill_token_threshold": 0, "async_scheduling": false}, "others": {"cache_config": ["CacheConfig", {"block_size": 16, "enable_prefix_caching": true}]}, "refused": "", "facts": {"drafts": 1, "lookahead": 2, "prefill_lookahead": 1, "hash_lookahead": 0, "charged": 0, "scheduled": 3, "active": 1, "in_flight": 3, "query_rows": 2, "eagle": true, "block_drop": false, "runner": "V2", "overlap": false}}
'''.strip().splitlines()]

COUNTS = [json.loads(line) for line in r'''
{"name": "counts 5b65d79f0c0b", "why": ["reach rules: draft counts"], "arguments": [[[1, 4, 3]], 1, 1], "drafts": [1]}
'''.strip().splitlines()]

#: what a configuration is asked
FACTS = {
    "drafts": lambda config: config.num_speculative_tokens,
    "lookahead": lambda config: config.num_lookahead_tokens,
    "prefill_lookahead": lambda config: config.num_prefill_lookahead_tokens,
    "hash_lookahead": lambda config: config.num_hash_lookahead_tokens,
    "charged": lambda config: getattr(config.speculative_config, "max_num_new_slots_for_drafting", 0),
    "scheduled": lambda config: config.scheduler_config.max_num_scheduled_tokens,
    "active": lambda config: config.scheduler_config.max_num_active_seqs,
    "in_flight": lambda config: config.max_in_flight_tokens,
    "query_rows": lambda config: config.uniform_decode_query_len,
    "eagle": lambda config: config.speculative_config is not None and config.speculative_config.use_eagle(),
    "block_drop": lambda config: config.speculative_config is not None and config.speculative_config.use_eagle_block_drop(),
    "runner": lambda config: "V2" if config.use_v2_model_runner else "V1",
    "overlap": lambda config: bool(config.scheduler_config.async_scheduling),
}
folders = tempfile.TemporaryDirectory()


def folder(name: str) -> str:
    path = Path(folders.name, name)
    if not path.is_dir():
        path.mkdir()
        (path / "config.json").write_text(json.dumps(MODELS[name]))
    return str(path)


def build(case: dict[str, Any]) -> Any:
    """The `VllmConfig`. Raises what the constructors raise."""
    target = vllm.config.ModelConfig(
        model=folder(case["target"]), skip_tokenizer_init=True, dtype="float16", max_model_len=256
    )
    drafter = None
    if case["speculation"] is not None:
        model = {"model": folder(case["drafter"])} if case["drafter"] else {}
        # the package is not asked for
        with mock.patch("vllm.config.speculative.has_arctic_inference", return_value=True):
            drafter = vllm.config.SpeculativeConfig(
                **case["speculation"],
                **model,
                target_model_config=target,
                target_parallel_config=vllm.config.ParallelConfig(),
            )
    return vllm.config.VllmConfig(
        model_config=target,
        scheduler_config=vllm.config.SchedulerConfig(**case["scheduler"]),
        device_config=vllm.config.DeviceConfig("cpu"),
        speculative_config=drafter,
        **{name: getattr(vllm.config, of)(**given) for name, (of, given) in case["others"].items()},
    )


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    """It is refused, or each fact is the expected one."""
    if case["refused"]:
        with pytest.raises(ValueError):  # the words may change
            build(case)
        return
    config = build(case)
    got = {name: FACTS[name](config) for name in case["facts"]}
    assert got == case["facts"], f"the case is there for: {case['why']}"


@pytest.mark.parametrize("case", COUNTS, ids=[case["name"] for case in COUNTS])
def test_counts(case: dict[str, Any]) -> None:
    """Drafts by batch size, from a table of ranges."""
    got = list(build_dynamic_sd_schedule_lookup(*case["arguments"])[1:])
    assert got == case["drafts"], f"the case is there for: {case['why']}"
