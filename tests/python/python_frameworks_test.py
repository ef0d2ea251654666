"""The recipes of docs/guide/python.md for other people's frameworks, as they stand there, on two ranks. Each framework whose
package is installed trains to what one process has on all data; the others are skipped."""
import importlib.util
import re
import textwrap

import pytest
import torch
from ranks import SOURCE, run_scripts

PAGE = SOURCE / "docs/guide/python.md"

# Four examples, two for each rank: a step of both ranks is one of all data, in whatever order they come.
PRELUDE = """
import os, socket, sys, tempfile
import torch
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = os.environ["COHORT_TEST_STORE"].removeprefix("file://") + ".port"
if rank == 0:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    with open(port + ".new", "w") as file:
        file.write(str(number))
    os.rename(port + ".new", port)
while not os.path.exists(port):
    pass
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=open(port).read(), TORCHELASTIC_RUN_ID="test", GROUP_RANK="0",
                  LOCAL_WORLD_SIZE=str(world_size))
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
inputs = torch.arange(12.0).reshape(4, 3).sin()
targets = inputs.sum(1, keepdim=True) + torch.tensor([[1.0], [0.0], [-2.0], [0.5]])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_function = torch.nn.functional.mse_loss
dataset = torch.utils.data.TensorDataset(inputs, targets)
loader = torch.utils.data.DataLoader(dataset, batch_size=2)
"""

EPILOGUE = """
import torch.distributed as dist
while hasattr(model, "module"):
    model = model.module
print("used", dist.get_backend(), "weights", torch.cat([each.detach().flatten() for each in model.parameters()]).tolist(), flush=True)
dist.destroy_process_group()
"""

LOOP = """
for epoch in range(3):
    for batch, target in loader:
        optimizer.zero_grad()
        loss = loss_function(model(batch), target)
        {backward}
        optimizer.step()
"""

# What stands before and after the recipe, and the modules that it needs.
RECIPES = {
    "lightning": ("""
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = model
    def training_step(self, batch, _):
        return loss_function(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return optimizer
module = Module()
os.chdir(tempfile.mkdtemp())
""", "", ["lightning"]),
    "fabric": ("", LOOP.format(backward="fabric.backward(loss)"), ["lightning"]),
    "accelerate": ("", LOOP.format(backward="accelerator.backward(loss)"), ["accelerate"]),
    "transformers": ("""
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model
    def forward(self, x, labels):
        return {"loss": loss_function(self.net(x), labels)}
model = Net()
examples = [{"x": x, "labels": y} for x, y in dataset]
folder = tempfile.mkdtemp()
others = dict(num_train_epochs=3, optim="sgd", learning_rate=0.1, lr_scheduler_type="constant", max_grad_norm=0, report_to=[],
              save_strategy="no", disable_tqdm=True)
""", "", ["transformers", "accelerate"]),
    # Examples of one rank only, as the recipe shares nothing out.
    "ignite": ("""
loader = torch.utils.data.DataLoader(torch.utils.data.Subset(dataset, [rank, rank + 2]), batch_size=2)
""", "", ["ignite"]),
    "deepspeed": ("""
os.environ["DS_ACCELERATOR"] = "cpu"
config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True,
          "gradient_clipping": 1e9}  # its default is 1
loader = torch.utils.data.DataLoader(torch.utils.data.Subset(dataset, [rank, rank + 2]), batch_size=2)
""", """
for epoch in range(3):
    for batch, target in loader:
        engine.backward(loss_function(engine(batch), target))
        engine.step()
""", ["deepspeed"]),
}


def recipes_of_page():
    return dict(re.findall(r"^```python (\w+)\n(.*?)^```", PAGE.read_text(), re.M | re.S))


def trained_by_one_process():
    text = textwrap.dedent(PRELUDE[PRELUDE.index("torch.manual_seed"):]).replace("batch_size=2", "batch_size=4")
    names = {"torch": torch}
    exec(text + LOOP.format(backward="loss.backward()"), names)
    return torch.cat([each.detach().flatten() for each in names["model"].parameters()])


def test_every_recipe_is_run():
    assert list(recipes_of_page()) == list(RECIPES)


def skip_without(modules):
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_of(name):
    before, after, modules = RECIPES[name]
    skip_without(modules)
    expected = trained_by_one_process()
    for rank, (code, out, err) in enumerate(run_scripts(PRELUDE + before + recipes_of_page()[name] + after + EPILOGUE, 2)):
        assert code == 0, f"rank {rank}\n{out}\n{err}"
        backend, weights = re.search(r"^used (\S+) weights \[(.*)\]$", out, re.M).groups()
        assert backend == "cohort"
        torch.testing.assert_close(torch.tensor([float(each) for each in weights.split(",")]), expected)
        assert "exchanged no gradients" not in err, err


# What the recipe of ignite is for: auto_model gives the model back as it is.
def test_a_model_that_a_framework_leaves_unwrapped_is_told():
    skip_without(["ignite"])
    before = RECIPES["ignite"][0]
    recipe = recipes_of_page()["ignite"].replace("DistributedDataParallel(model)", "ignite.distributed.auto_model(model)")
    for rank, (code, out, err) in enumerate(run_scripts(PRELUDE + before + "import ignite.distributed\n" + recipe + EPILOGUE, 2)):
        assert code == 0, out + err
        # Once in a job.
        assert ("[cohort] warning: rank 0 of 2 has run two backward passes and exchanged no gradients" in err) == (rank == 0)
