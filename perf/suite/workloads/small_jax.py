"""The training step that jax_train.py measures and ../turns.py compares builds with."""

LAYERS, WIDTH, BATCH = 6, 1024, 1024


def small_jax(jax):
    """A jitted step `train(state, x)`, in bf16, its first state and a batch."""
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    weights = [jax.random.normal(key, (WIDTH, WIDTH)) * WIDTH**-0.5 for key in keys[:LAYERS]]
    x = jax.random.normal(keys[LAYERS], (BATCH, WIDTH), jnp.bfloat16)

    def loss_of(weights, x):
        y = x
        for weight in weights:
            y = y + jax.nn.gelu(y @ weight.astype(jnp.bfloat16))
        return jnp.mean(jnp.square(y.astype(jnp.float32) - x.astype(jnp.float32)))

    @jax.jit
    def train(state, x):
        weights, momentum = state
        loss, gradients = jax.value_and_grad(loss_of)(weights, x)
        momentum = [0.9 * m + g for m, g in zip(momentum, gradients)]
        weights = [w - 0.1 * m for w, m in zip(weights, momentum)]
        return (weights, momentum), loss

    return train, (weights, [jnp.zeros_like(weight) for weight in weights]), x
