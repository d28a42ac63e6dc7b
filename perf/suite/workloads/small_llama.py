"""The small Llama that llama.py trains and ../turns.py compares builds with."""


def small_llama(transformers):
    """In bf16, on the CPU, with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=8192,
        hidden_size=1024,
        intermediate_size=2752,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config).bfloat16().train()
