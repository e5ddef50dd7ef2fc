"""The Trainer of Hugging Face: rows that it batches and deals itself, or whole batches that each rank reads itself."""

import pytest
from ranks import check_epoch, run_ranks

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

SCRIPT = """
import json, sys
import torch
import transformers
from accelerate.data_loader import DataLoaderShard
from corgipile.errors import BadArgument
from corgipile.torch import CorgiPileDataset

out, path, folder = sys.argv[1:]
seen = []

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, row, features, labels):
        seen.append(row.tolist())
        return {"loss": torch.nn.functional.cross_entropy(self.layer(features), labels.long())}

class Whole(transformers.Trainer):
    def get_train_dataloader(self):
        workers = self.args.dataloader_num_workers
        return DataLoaderShard(self.train_dataset, device=self.args.device, batch_size=None, num_workers=workers)

def labelled(batch):
    return {"row": batch["row"], "features": batch["features"], "labels": batch["label"]}

def train(kind, resume=None, **settings):
    seen.clear()
    dataset = CorgiPileDataset(path, transform=labelled, seed=1, **settings)
    arguments = transformers.TrainingArguments(
        folder, use_cpu=True, per_device_train_batch_size=64, num_train_epochs=2, save_steps=5, report_to=[],
        dataloader_num_workers=1, dataloader_persistent_workers=kind is not Whole, disable_tqdm=True)
    trainer = kind(Model(), arguments, train_dataset=dataset)
    batches = len(trainer.get_train_dataloader())
    trainer.train(resume_from_checkpoint=resume)
    return [seen[:batches], seen[batches:]] if resume is None else list(seen)

found = {"rows": train(transformers.Trainer, rank=0, world=1), "whole": train(Whole, batch_size=64)}
found["resumed"] = train(Whole, f"{folder}/checkpoint-5", batch_size=64)
try:
    found["twice"] = train(transformers.Trainer)
except BadArgument as error:
    found["twice"] = str(error)
with open(out, "w") as file:
    json.dump(found, file)
torch.distributed.destroy_process_group()
"""


def test_every_row_is_visited_once_also_after_a_checkpoint(path, tmp_path):
    ranks = run_ranks(SCRIPT, tmp_path, path, tmp_path / "checkpoints")
    for how in ("rows", "whole"):
        for epoch in range(2):
            check_epoch([found[how][epoch] for found in ranks], 1000)
        assert ranks[0][how][0] != ranks[0][how][1]
    for found in ranks:
        assert found["resumed"] == found["whole"][0][5:] + found["whole"][1]
        assert "Accelerate would share the epoch among ranks a second time" in found["twice"]
