"""Since vllm 0.26 these three modules read compute_topk_scores, each from its own namespace."""

from vllm.v1.worker.gpu.sample import prompt_logprob, sampler
from vllm.v1.worker.gpu.spec_decode import rejection_sampler
from vllm_ascend.worker.v2.sample.logprob import compute_topk_scores

prompt_logprob.compute_topk_scores = compute_topk_scores
sampler.compute_topk_scores = compute_topk_scores
rejection_sampler.compute_topk_scores = compute_topk_scores
