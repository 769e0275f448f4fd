"""What `--help` says: short, and first what most people need first."""

__all__ = ["OVERVIEW", "VERBS"]

FIT = """platform fit --config FILE [--run NAME] [--KEY VALUE ...]     train
platform fit --run NAME --resume [--KEY VALUE ...]            go on where it stopped

  --config FILE             a YAML file; a second one adds to the first
  --run NAME                the folder runs/NAME (or a path); default: the config's name and the time
  --task NAME               what to train, such as Translation; usually in the config
  --data.train FILES        your data: a table, "[source.txt, target.txt]", or hub:NAME:SPLIT
  --data.validation FILES   likewise; --data.test FILES too
  --model.position NAME     how positions are told: Sinusoidal, Learned, Relative, Rotary, NoPosition
  --model.d_model N         width; also num_heads, dropout, encoder_layers and decoder_layers, or num_layers
  --training.optimizer.lr X learning rate; --training.schedule NAME and its keys
  --data.batches.tokens N   target tokens in a batch
  --trainer.max_steps N     length of the training; or --trainer.max_epochs N
  --trainer.precision P     32-true, bf16-mixed or 16-mixed
  --seed N                  decides initial weights, dropout and order
  --keys                    print every key with its help and default, for the config given

Every key may stand in the YAML file or on the command line, which wins."""

USE = """platform {verb} --ckpt_path PATH [--data.KEY VALUE ...]

  --ckpt_path PATH        a checkpoint, or a run folder (its best checkpoint)
  --data.{split} FILES    other data than the run's own; other --data keys likewise
  --task.KEY VALUE        other options of the task, such as --task.search.beam 1
  --json FILE             write the figures there too"""

PREDICT = """platform predict --ckpt_path PATH [--input FILE] [--output FILE] [--json]

  One line in, one line out; from standard input to standard output unless files are given.

  --ckpt_path PATH        a checkpoint, or a run folder (its best checkpoint)
  --json                  JSON lines with scores, and with alternatives where more than one is asked for
  --stream                print each answer while it is made (language models)
  --task.search.beam N    translation: width of the beam; also length_penalty, n_best, max_ratio, max_extra
  --task.sampling.KEY V   language models: temperature (0: greedy), top_k, top_p, min_p, repetition_penalty,
                          max_tokens, stop, samples, seed
  --task.draft PATH       language models: a smaller model with the same tokenizer that proposes tokens
  --data.limits.KEY V     classification: max_length and cut, of long texts; a pair of texts is a line text, tab, second
  --device DEVICE         cpu, cuda, ...; default: cuda if there is one"""

SCORE = """platform score --ckpt_path PATH [--input FILE] [--output FILE] [--json] [--device DEVICE]

  --ckpt_path PATH        a checkpoint, or a run folder (its best checkpoint)

  The log-probability (in nats) of each line, its end included; for translation a line is source, tab, target.
  For classification, the log-probability of every label for each line.
  --json adds the number of tokens and the perplexity per token; for language models also per word, and bits per byte."""

TOKENIZER = """platform tokenizer train --output FILE [--kind KIND] [--vocab_size N] [--lowercase] --input FILES ...
platform tokenizer show PATH [--input FILE]

  train   makes a tokenizer from text files, one text a line, or tables (.tsv, .csv, .jsonl, .parquet), each also .gz
          --columns NAMES   the columns of tables, such as source,target or 0,1
          --min_frequency N leaves out what is seen less often (2)
          kinds: bpe, byte_bpe, unigram, wordpiece, word, word_punctuation, character, byte
  show    how lines are cut, and whether decoding gives them back; PATH is a tokenizer, a checkpoint or a run folder"""

TASKS = """platform tasks

  The tasks found, each with the classes of its `model:` and `data:` keys and the file it comes from:
  those of Polyformer, and those in a folder `tasks/` where you are."""

NEW_TASK = """platform new-task NAME

  Writes a task of your own that works at once, and that you then change: tasks/NAME.py, configs/NAME/quickstart.yaml and
  tests/test_NAME.py (tests/tasks/test_NAME.py in a clone of Polyformer), where you are. Nothing is overwritten.
  NAME is in snake_case or CamelCase, such as spam_filter or SpamFilter; docs/adding_a_head.md goes through what is written."""

OVERVIEW = """platform VERB ...      train and use Transformers

  fit         train from a YAML file, or go on with a run
  validate    measure a checkpoint on validation data
  test        measure a checkpoint on test data
  predict     answer lines of text with a checkpoint
  score       log-probabilities of given texts
  tokenizer   make a tokenizer; show how text is cut
  tasks       the tasks that can be trained
  new-task    a task of your own: its file, its config and a test that passes at once

`platform VERB --help` says more; `--debug` shows where an error came from.
Start with: platform fit --config configs/translation/quickstart.yaml
        or: platform fit --config configs/language_modeling/quickstart.yaml"""

VERBS = {
    "fit": ("fit", "fit", FIT),
    "validate": ("measure", "validate", USE.format(verb="validate", split="validation")),
    "test": ("measure", "test", USE.format(verb="test", split="test")),
    "predict": ("answer", "predict", PREDICT),
    "score": ("answer", "score", SCORE),
    "tokenizer": ("tokenizer", "tokenizer", TOKENIZER),
    "tasks": ("tasks", "tasks", TASKS),
    "new-task": ("new_task", "new_task", NEW_TASK),
}
"""verb -> (module of polyformer.cli, function in it, help)."""
