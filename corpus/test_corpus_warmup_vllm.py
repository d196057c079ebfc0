"""Warmups of vLLM's V2 runner with the steps that the specification expects: a corpus of slotcheck 0.1.0.

Needs vLLM 0.33.0 and pytest, nothing else: no GPU, no weights, no network. `pytest test_corpus_warmup_vllm.py` runs the release's own
warmup with a stand-in for the model runner, in seconds, and compares what the worker would be given: computed and scheduled
tokens, blocks, what is zeroed. Each trace says which crossings it reaches and which small defects of 0.33.0
(`mutant file:line ...`) it finds. Written by `slotcheck corpus export`; do not edit.
"""

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1")
os.environ["TORCH_LOGS"] = "-all"
if not any(map(os.path.exists, ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128"))):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # no GPU here, and none is needed

import torch
import vllm.v1.kv_cache_interface as interface
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.worker.gpu import warmup

register_all_kvcache_specs(None)

TRACES = [json.loads(line) for line in r'''
{"name": "01230d30b746", "why": ["mutant v1/worker/gpu/warmup.py:313:7 negation: max_blocks_per_req > 0 -> not max_blocks_per_req > 0"], "specs": [["FullAttentionSpec", {"block_size": 1, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}, 0]], "setting": {"num_blocks": 2, "max_num_seqs": 2, "max_num_batched_tokens": 4, "max_model_len": 1, "pooling": false, "last_pp_rank": true, "encoder_decoder": false, "mm_encoder_only": false, "max_encoder_len": 0, "lookahead": 0, "null_block_redirect": false, "zeroes_blocks": false, "drafts": 0, "adaptive": false}, "warmups": [["warmup_kernels", [], 0, [null, "", [[[0, 0, 2, [[1]]]], [[0, 2, 1, [[1]]]], []], []]]]}
{"name": "4e6f471766d5", "why": ["mutant v1/worker/gpu/block_table.py:320:23 operand: tl.maximum(first_pos - reach, 0) // block_size -> tl.maximum(first_pos - reach, 0)"], "specs": [["SlidingWindowMLASpec", {"block_size": 2, "num_kv_heads": 2, "head_size": 8, "dtype": "float16", "sliding_window": 2}, 0]], "setting": {"num_blocks": 2, "max_num_seqs": 1, "max_num_batched_tokens": 2, "max_model_len": 3, "pooling": false, "last_pp_rank": true, "encoder_decoder": false, "mm_encoder_only": false, "max_encoder_len": 0, "lookahead": 0, "null_block_redirect": false, "zeroes_blocks": false, "drafts": 0, "adaptive": false}, "warmups": [["warmup_kernels", [], 0, [null, "", [[[0, 0, 2, [[1]]]], [[0, 2, 1, [[1, 2]]]], []], []]]]}
{"name": "72a0cfa095a4", "why": ["reach warmup: kind full_attention", "reach warmup: kind rswa", "reach warmup: the pool decides"], "specs": [["FullAttentionSpec", {"block_size": 24, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}, 2], ["RSWASpec", {"block_size": 24, "num_kv_heads": 2, "head_size": 8, "dtype": "float16", "rswa_window": 19, "dcp_sharded": false}, 0]], "setting": {"num_blocks": 9, "max_num_seqs": 4, "max_num_batched_tokens": 312, "max_model_len": 1768, "pooling": false, "last_pp_rank": false, "encoder_decoder": false, "mm_encoder_only": true, "max_encoder_len": 0, "lookahead": 15, "null_block_redirect": false, "zeroes_blocks": false, "drafts": 14, "adaptive": true}, "warmups": [["warmup_kernels", [], 0, [null, "", [], []]], ["run_mixed_prefill_decode_warmup", [312], 0, [false, "", [], []]], ["warmup_kernels", [], 0, [null, "", [], []]]]}
{"name": "7c2e73d51d82", "why": ["mutant v1/worker/gpu/warmup.py:289:12 argument: MultiModalFeatureSpec(..., identifier='_warmup_encoder') -> MultiModalFeatureSpec(...)", "mutant v1/worker/gpu/warmup.py:369:4 deletion: prefill_output.scheduled_new_reqs = new_reqs -> pass", "mutant v1/worker/gpu/warmup.py:418:16 deletion: cached_req_data.new_block_ids.append( tuple(_alloc_blocks(n) ... f any(deltas) else None ) -> pass", "reach warmup: cap at max_model_len", "reach warmup: kind cross_attention", "reach warmup: mixed runs", "reach warmup: null-block redirect", "reach warmup: two requests or more"], "specs": [["CrossAttentionSpec", {"block_size": 2, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}, 0]], "setting": {"num_blocks": 16384, "max_num_seqs": 5, "max_num_batched_tokens": 2048, "max_model_len": 624, "pooling": false, "last_pp_rank": true, "encoder_decoder": true, "mm_encoder_only": false, "max_encoder_len": 149, "lookahead": 15, "null_block_redirect": true, "zeroes_blocks": false, "drafts": 15, "adaptive": false}, "warmups": [["run_mixed_prefill_decode_warmup", [623], 0, [true, "", [[[0, 0, 2, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]]], [[0, 2, 1, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 0, 622, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]]], []], []]], ["warmup_kernels", [], 0, [null, "", [[[0, 0, 17, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 0, 17, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]], [2, 0, 17, [[151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225]]], [3, 0, 17, [[226, 227, 228, 229, 230, 231, 232, 233, 234, 235, 236, 237, 238, 239, 240, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 259, 260, 261, 262, 263, 264, 265, 266, 267, 268, 269, 270, 271, 272, 273, 274, 275, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 294, 295, 296, 297, 298, 299, 300]]], [4, 0, 17, [[301, 302, 303, 304, 305, 306, 307, 308, 309, 310, 311, 312, 313, 314, 315, 316, 317, 318, 319, 320, 321, 322, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332, 333, 334, 335, 336, 337, 338, 339, 340, 341, 342, 343, 344, 345, 346, 347, 348, 349, 350, 351, 352, 353, 354, 355, 356, 357, 358, 359, 360, 361, 362, 363, 364, 365, 366, 367, 368, 369, 370, 371, 372, 373, 374, 375]]]], [[0, 17, 16, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 17, 16, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]], [2, 17, 16, [[151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225]]], [3, 17, 16, [[226, 227, 228, 229, 230, 231, 232, 233, 234, 235, 236, 237, 238, 239, 240, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 259, 260, 261, 262, 263, 264, 265, 266, 267, 268, 269, 270, 271, 272, 273, 274, 275, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 294, 295, 296, 297, 298, 299, 300]]], [4, 17, 16, [[301, 302, 303, 304, 305, 306, 307, 308, 309, 310, 311, 312, 313, 314, 315, 316, 317, 318, 319, 320, 321, 322, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332, 333, 334, 335, 336, 337, 338, 339, 340, 341, 342, 343, 344, 345, 346, 347, 348, 349, 350, 351, 352, 353, 354, 355, 356, 357, 358, 359, 360, 361, 362, 363, 364, 365, 366, 367, 368, 369, 370, 371, 372, 373, 374, 375]]]], [[0, 33, 16, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 33, 1, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]]], [[0, 49, 1, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 34, 1, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]]], [[0, 50, 16, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]]], [[0, 66, 1, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]]], [], [[0, 0, 17, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 0, 17, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]], [2, 0, 17, [[151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225]]], [3, 0, 17, [[226, 227, 228, 229, 230, 231, 232, 233, 234, 235, 236, 237, 238, 239, 240, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 259, 260, 261, 262, 263, 264, 265, 266, 267, 268, 269, 270, 271, 272, 273, 274, 275, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 294, 295, 296, 297, 298, 299, 300]]], [4, 0, 17, [[301, 302, 303, 304, 305, 306, 307, 308, 309, 310, 311, 312, 313, 314, 315, 316, 317, 318, 319, 320, 321, 322, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332, 333, 334, 335, 336, 337, 338, 339, 340, 341, 342, 343, 344, 345, 346, 347, 348, 349, 350, 351, 352, 353, 354, 355, 356, 357, 358, 359, 360, 361, 362, 363, 364, 365, 366, 367, 368, 369, 370, 371, 372, 373, 374, 375]]]], [[0, 17, 16, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 17, 16, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]], [2, 17, 16, [[151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225]]], [3, 17, 16, [[226, 227, 228, 229, 230, 231, 232, 233, 234, 235, 236, 237, 238, 239, 240, 241, 242, 243, 244, 245, 246, 247, 248, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 259, 260, 261, 262, 263, 264, 265, 266, 267, 268, 269, 270, 271, 272, 273, 274, 275, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 294, 295, 296, 297, 298, 299, 300]]], [4, 17, 16, [[301, 302, 303, 304, 305, 306, 307, 308, 309, 310, 311, 312, 313, 314, 315, 316, 317, 318, 319, 320, 321, 322, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332, 333, 334, 335, 336, 337, 338, 339, 340, 341, 342, 343, 344, 345, 346, 347, 348, 349, 350, 351, 352, 353, 354, 355, 356, 357, 358, 359, 360, 361, 362, 363, 364, 365, 366, 367, 368, 369, 370, 371, 372, 373, 374, 375]]]], [[0, 33, 16, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 33, 1, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]]], [[0, 49, 1, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]], [1, 34, 1, [[76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150]]]], [[0, 50, 16, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]]], [[0, 66, 1, [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75]]]], []], []]]]}
{"name": "9cb9f907e568", "why": ["mutant v1/worker/gpu/warmup.py:274:32 negation: num_spec_steps > 0 -> not num_spec_steps > 0", "mutant v1/worker/gpu/warmup.py:413:24 operand: req_computed[i] + num_tokens -> req_computed[i]"], "specs": [["FullAttentionSpec", {"block_size": 2, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}, 0]], "setting": {"num_blocks": 7, "max_num_seqs": 2, "max_num_batched_tokens": 4, "max_model_len": 7, "pooling": false, "last_pp_rank": true, "encoder_decoder": false, "mm_encoder_only": false, "max_encoder_len": 0, "lookahead": 0, "null_block_redirect": false, "zeroes_blocks": false, "drafts": 0, "adaptive": false}, "warmups": [["warmup_kernels", [], 0, [null, "", [[[0, 0, 2, [[1]]], [1, 0, 2, [[2]]]], [[0, 2, 1, [[1, 3]]], [1, 2, 1, [[2, 4]]]], [[0, 3, 1, [[1, 3]]], [1, 3, 1, [[2, 4]]]], [[0, 4, 1, [[1, 3, 5]]]], []], []]]]}
{"name": "e46fe81c25d6", "why": ["mutant v1/worker/gpu/block_table.py:183:11 negation: not mask_sliding_window -> mask_sliding_window", "mutant v1/worker/gpu/warmup.py:316:19 operand: min( num_reqs, max(1, (model_runner.kv_cache_config.num_bloc ... // max_blocks_per_req), ) -> max(1, (model_runner.kv_cache_config.num_blocks - 1) // max_blocks_per_req)", "reach warmup: kind mamba_all", "reach warmup: pooling"], "specs": [["SlidingWindowMLASpec", {"block_size": 1, "num_kv_heads": 2, "head_size": 8, "dtype": "float16", "sliding_window": 30, "dcp_sharded": false}, 0], ["SlidingWindowSpec", {"block_size": 7, "num_kv_heads": 2, "head_size": 8, "dtype": "float16", "sliding_window": 3, "extra_retained_tokens": 3, "dcp_sharded": false}, 0], ["MambaSpec", {"block_size": 16, "shapes": [[2, 8]], "dtypes": ["float16"], "mamba_cache_mode": "all", "num_speculative_blocks": 1}, 0], ["SlidingWindowMLASpec", {"block_size": 6, "num_kv_heads": 2, "head_size": 8, "dtype": "float16", "sliding_window": 5, "dcp_sharded": false}, 0], ["CrossAttentionSpec", {"block_size": 16, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}, 0]], "setting": {"num_blocks": 54, "max_num_seqs": 1, "max_num_batched_tokens": 1040, "max_model_len": 47, "pooling": true, "last_pp_rank": true, "encoder_decoder": true, "mm_encoder_only": false, "max_encoder_len": 168, "lookahead": 0, "null_block_redirect": false, "zeroes_blocks": true, "drafts": 0, "adaptive": false}, "warmups": [["warmup_kernels", [], 0, [null, "", [[[0, 0, 2, [[1, 2], [3], [4, 5], [6], [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]]]], []], [0]]]]}
'''.strip().splitlines()]


def build_spec(name: str, arguments: dict[str, Any], layers: int) -> Any:
    given = dict(arguments)
    if "dtype" in given:
        given["dtype"] = getattr(torch, given["dtype"])
    if "dtypes" in given:
        given["dtypes"] = tuple(getattr(torch, one) for one in given["dtypes"])
        given["shapes"] = tuple(tuple(one) for one in given["shapes"])
    spec = getattr(interface, name)(**given)
    if not layers:
        return spec
    every = dict.fromkeys([f"layer.{n}" for n in range(layers)], spec)
    return interface.UniformTypeKVCacheSpecs(block_size=given["block_size"], kv_cache_specs=every)


class Connector:
    """The runner's KV connector."""

    enabled = True

    def set_disabled(self, disabled: bool) -> None:
        self.enabled = not disabled


class Zeroer:
    """The kernel that zeroes fresh blocks."""

    def __init__(self) -> None:
        self.zeroed: list[int] = []

    def warmup(self, num_blocks: int) -> None:
        self.zeroed.clear()

    def zero_block_ids(self, block_ids: list[int]) -> None:
        self.zeroed += block_ids


class WorkerFailure(Exception):
    """A worker function raises, where a trace asks for it."""


class Machine:
    """What the warmup reads of a model runner, and the worker's two functions."""

    def __init__(self, trace: dict[str, Any]) -> None:
        s = SimpleNamespace(**trace["setting"])
        self.groups = len(trace["specs"])
        groups = [SimpleNamespace(kv_cache_spec=build_spec(*one)) for one in trace["specs"]]
        self.zeroer = Zeroer() if s.zeroes_blocks else None
        self.runner = SimpleNamespace(
            num_speculative_steps=s.drafts,
            decode_query_len=s.drafts + 1,
            kv_cache_config=SimpleNamespace(num_blocks=s.num_blocks, kv_cache_groups=groups),
            scheduler_config=SimpleNamespace(
                max_num_seqs=s.max_num_seqs, max_num_batched_tokens=s.max_num_batched_tokens
            ),
            max_num_reqs=s.max_num_seqs,
            max_model_len=s.max_model_len,
            is_pooling_model=s.pooling,
            is_last_pp_rank=s.last_pp_rank,
            is_encoder_decoder=s.encoder_decoder,
            is_encoder_only=s.mm_encoder_only,
            model_config=SimpleNamespace(
                get_vocab_size=lambda: 64, get_pooling_task=lambda tasks: tasks[0], pooler_config=None
            ),
            get_supported_tasks=lambda: ("embed",),
            model_state=SimpleNamespace(**({"max_encoder_len": s.max_encoder_len} if s.max_encoder_len else {})),
            vllm_config=SimpleNamespace(num_lookahead_tokens=s.lookahead, is_mm_encoder_only=s.mm_encoder_only),
            kv_connector=Connector(),
            kv_block_zeroer=self.zeroer,
            adaptive_verification=object() if s.adaptive else None,
            rejection_sampler=SimpleNamespace(enable_adaptive_verification=s.adaptive) if s.drafts else None,
            speculative_config=SimpleNamespace(num_speculative_tokens=s.drafts) if s.drafts else None,
            block_tables=SimpleNamespace(redirect_writes_to_null_block=s.null_block_redirect),
        )

    def run(self, name: str, arguments: list[int], fail: int) -> list[Any]:
        """What a warmup returns, the name of what it raises, its steps, what it has zeroed."""
        self.calls, self.fail = 0, fail
        self.seen: list[list[Any]] = []
        self.rows: dict[str, list[list[int]]] = {}
        self.numbers: dict[str, int] = {}
        if self.zeroer is not None:
            self.zeroer.zeroed.clear()
        answer, error = None, ""
        try:
            answer = getattr(warmup, name)(self.runner, self.execute_model, self.sample_tokens, *arguments)
        except Exception as raised:
            error = type(raised).__name__
        return [answer, error, self.seen, self.zeroer.zeroed if self.zeroer is not None else []]

    def _called(self) -> None:
        self.calls += 1
        if self.calls == self.fail:
            raise WorkerFailure

    def execute_model(self, output: Any) -> None:
        """A step: request, computed, scheduled, blocks of each group so far."""
        self._called()
        cached = output.scheduled_cached_reqs
        given = list(zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True))
        given += [(new.req_id, new.num_computed_tokens, new.block_ids) for new in output.scheduled_new_reqs]
        step = []
        for name, computed, blocks in given:
            request = self.numbers.setdefault(name, len(self.numbers))
            held = self.rows.setdefault(name, [[] for _ in range(self.groups)])
            for row, more in zip(held, blocks or (), strict=False):
                row += more
            step.append([request, computed, output.num_scheduled_tokens[name], [list(row) for row in held]])
        if given or output.finished_req_ids:
            self.seen.append(step)
        for name in output.finished_req_ids:
            self.rows.pop(name, None)
            self.numbers.pop(name, None)

    def sample_tokens(self, grammar_output: Any) -> None:
        """Belongs to the step before."""
        self._called()


@pytest.mark.parametrize("trace", TRACES, ids=[trace["name"] for trace in TRACES])
def test_trace(trace: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each warmup runs as it should."""
    if not torch.accelerator.is_available():
        monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
    machine = Machine(trace)
    for name, arguments, fail, expected in trace["warmups"]:
        got = json.loads(json.dumps(machine.run(name, arguments, fail)))
        assert got == expected, f"{name}{tuple(arguments)}; the trace is there for: {trace['why']}"
