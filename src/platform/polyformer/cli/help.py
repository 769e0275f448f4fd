"""What `--help` says: short, and first what most people need first."""

__all__ = ["OVERVIEW", "VERBS"]

FIT = """platform fit --config FILE [--run NAME] [--KEY VALUE ...]     train
platform fit --run NAME --resume [--KEY VALUE ...]            go on where it stopped

  Ctrl-C, or SIGTERM, ends a training when the step at work is done, and saves it; once more, at once.

  --config FILE             a YAML file; a second one adds to the first. Those that come with Polyformer, such as
                            configs/translation/quickstart.yaml, are found from any folder
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
  --logger wandb            show the run on Weights & Biases too, offline where there is no key or no network;
                            --wandb.project NAME, also entity, group, tags, mode, checkpoints; or --logger tensorboard
  --keys                    print every key of the config given, with its value there and what it is for

Every key may stand in the YAML file or on the command line, which wins."""

USE = """platform {verb} --ckpt_path PATH [--data.KEY VALUE ...]

  --ckpt_path PATH        a checkpoint, or a run folder (its best checkpoint)
  --data.{split} FILES    other data than the run's own; other --data keys likewise
  --task.KEY VALUE        other options of the task, such as --task.search.beam 1
  --json FILE             write the figures there too
  --examples FILE         write what became of each example there, a line of JSON each, also .gz; `platform compare` reads
                          test.jsonl.gz in a run folder
  --run NAME              write a folder runs/NAME (or a path) that `platform compare` reads as a run, with these figures and
                          examples alone; the run that is measured stays as it is"""

PREDICT = """platform predict --ckpt_path PATH [--input FILE] [--output FILE] [--json]

  One line in, one line out; from standard input to standard output unless files are given. On several devices:
  torchrun --nproc-per-node N --no-python platform predict ... --input FILE; lines come out in their order.

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
  --json adds the number of tokens and the perplexity per token; for language models also per word, and bits per byte. The end
  counts there too, as a token, a word and a byte."""

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

CHECK = """platform check --config FILE [--KEY VALUE ...]
platform check --ckpt_path PATH [--data.KEY VALUE ...]

  Shows on your own model, and on a few of your own texts, that nothing changes a result which must not: padding, batch mates,
  the order of a batch, decoding step by step, packing, accumulation, ranks, saving and loading; and that each example is
  served once. A line for each law: what was compared, the largest difference, and the largest one accepted.
  The exit code is 1 where a law is broken. About a minute for a base model; the data is prepared first, as for `fit`.

  --config FILE           a model with fresh weights, moved away from symmetry; every key of `fit` may follow
  --ckpt_path PATH        a trained one: a checkpoint, or a run folder (its best checkpoint)
  --data.train FILES      data to take the texts from; without any, the laws about data are left out, and texts are random
  --json                  the same as JSON
  --device DEVICE         cpu (default), cuda, ..."""

FIND = """platform find rate   --config FILE [--low X] [--high X] [--steps N] [--output FILE] [--KEY VALUE ...]
platform find tokens --config FILE [--memory GB] [--KEY VALUE ...]

  Prints a key for `fit`, found by trying on one device; nothing is kept. Every key of `fit` may follow.

  rate      trains while the learning rate rises from step to step, until the loss explodes, and suggests the rate at which it
            falls fastest (Smith 2017); your schedule is left out, your optimizer and its groups are not
  tokens    the largest `data.batches.tokens` that fits: on a GPU by steps on the longest texts, until there is no room; on a
            CPU by an estimate of the memory

  --low X, --high X    the first and the last rate (1e-6, 1)
  --steps N            optimizer steps (100); more for small batches
  --output FILE        the picture of loss against rate: .png, .svg or .pdf (rate.png)
  --memory GB          how much may be used, in 10^9 bytes; all that there is, if not given"""

PLOT = """platform plot positions [--config FILE | --ckpt_path PATH] [--length N] [--output FILE]
platform plot masks     [--config FILE | --ckpt_path PATH] [--length N] [--output FILE]
platform plot attention --ckpt_path PATH --text TEXT [--target TEXT] [--part PART] [--layers N,N] [--heads N,N] [--output FILE]

  positions   what each position encoding says of places and distances: vectors and their products, turns, biases
  masks       which tokens each mixer lets see which, measured by gradients through the mixer itself
  attention   what the heads of a trained model look at in a text, with the tokens beside it

  --config FILE        the positions or mixers of this config, keys of `fit` may follow; without it, all that there are
  --ckpt_path PATH     those of a trained model: a checkpoint, or a run folder (its best checkpoint)
  --length N           so many tokens (positions: 128; masks: 48); windows are seen in texts that are longer than they
  --text TEXT          what is read; for pairs of texts a tab stands between them
  --target TEXT        translation: what is written; otherwise the model's own translation
  --part PART          translation: cross (default), encoder or decoder
  --layers N,N         these layers only, from 0; also 0-2
  --heads N,N          these heads only, or mean: the mean of all
  --output FILE        ends in .png, .svg or .pdf; otherwise KIND.png"""

SWEEP = """platform sweep SWEEP.yaml [--parallel N] [--KEY VALUE ...]
platform sweep --config FILE --vary KEY=VALUE,VALUE [--vary ...] [--seeds N] [--KEY VALUE ...]

  Trains every combination by `platform fit`, in runs/SWEEP/CELL. The same command goes on where it was stopped or killed:
  what has finished is left alone, what has begun is resumed. A training that fails does not stop the others; the exit code
  is 1 then. `platform compare runs/SWEEP` puts them side by side.

  --config FILE         the base; keys of `fit` that follow hold for all trainings
  --vary KEY=V,V        values of one key, such as model.position=Sinusoidal,Rotary; may be repeated: a grid
  --seeds N             each setting N times, with seeds 0 to N - 1; or --seeds 3,7
  --budget steps=N      the same for all, whatever length the config gives; or tokens=N, told from the size of a batch. Or
                        seconds=N or minutes=N: the time that a training may have at most. It ends there wherever its schedule
                        is, or before, where the length ends that its config gives, since schedules are made for a length
  --parallel N          so many at once, sharing the cores, and the devices in CUDA_VISIBLE_DEVICES
  --name NAME           the folder runs/NAME (or a path); default: the file's name, and the keys that --vary names
  --dry-run             print the commands only
  --cell NAME           train this one only
  --NAME:KEY VALUE      a key of `fit` for the trainings that have the choice NAME, such as --small:model.dropout 0.0
  --trials N            of a search
  --to-wandb FILE       write the sweep for `wandb sweep` and `wandb agent` instead

  SWEEP.yaml holds the same and more:
    config: configs/translation/quickstart.yaml
    fixed: {model.d_model: 64}                       # for all
    vary:                                            # a grid
      model.position: [Sinusoidal, Rotary]           #   the values of a key,
      size:                                          #   or names of whole sets of settings
        small: {model.d_model: 64, model.num_heads: 2}
        large: {model.d_model: 256, model.num_heads: 8}
      mixer: [RNN, Transformer]                      #   or names of those that are offered: --vary mixer=RNN,GRU takes others
    offered: {mixer: {RNN: {model.mixer: RNN}, GRU: {model.mixer: GRU}, Transformer: {}}}
    cells: [{model.dropout: 0.1}, {model.dropout: 0.3, seed: 7}]     # a list; or names of settings, as above
    random: {count: 20, seed: 0, from: {training.optimizer.lr: {low: 0.0001, high: 0.01, scale: log}, model.num_layers: [2, 4]}}
    seeds: 3
    budget: {steps: 1000}
    parallel: 2
  `config` may be varied too: configs of several tasks make one sweep.

  Instead of `vary`, `cells`, `random` and `seeds`, a search by Optuna (pip install 'optuna>=4'), which chooses settings by what
  earlier ones came to:
    search:
      from: {training.optimizer.lr: {low: 0.0001, high: 0.01, scale: log}, model.num_layers: {low: 2, high: 6, whole: true}}
      trials: 30
      seed: 0                    # one at a time, the same trials again
      metric: val/bleu           # default: what checkpoints are judged by; never the test
      sampler: tpe               # or random
      prune_after: 5             # from so many finished trials on, a training worse than their median is ended; null: never"""

COMPARE = """platform compare RUN ... [--format md|csv|json|html] [--output FILE] [--curves FILE]

  A table of the runs that names only what differs between them; those that differ only in the seed are one row, with mean and
  standard deviation. Beneath it, whether the first run and each other differ by more than chance on the test data: paired
  bootstrap for translation, McNemar's test for classification, losses of documents for language models; with the examples on
  which they differ most. What cannot be compared is not ranked, and the reason is given. Each task has its own table; where
  the same settings were trained in several tasks, one more puts them side by side: accuracies, each task's own metric, costs.

  RUN                   a run folder, a name in runs/, a pattern, a folder of runs such as a sweep's, or a run on Weights &
                        Biases: ENTITY/PROJECT/RUN, with or without wandb: before it
  --metrics NAME,NAME   the metrics shown, such as train/accuracy,test/bleu; default: all of the test. Losses and accuracies of
                        training are means over its last tenth, with dropout
  --by NAME             the metric that decides the order
  --mark NAME=VALUE     time, steps and tokens until a metric reaches a value, such as val/loss=3.0; may be repeated
  --baseline RUN        the run or row that the others are tested against; default: the first
  --no-tests            no tests on the test data
  --format FORMAT       md (default), csv, json or html: one page with charts that needs nothing else
  --output FILE         write there; its ending decides the format
  --curves FILE         learning curves against steps, tokens and time: .png, .svg or .pdf"""

OVERVIEW = """platform VERB ...      train and use Transformers

  fit         train from a YAML file, or go on with a run
  validate    measure a checkpoint on validation data
  test        measure a checkpoint on test data
  predict     answer lines of text with a checkpoint
  score       log-probabilities of given texts
  check       show on a config or a checkpoint that nothing changes a result which must not
  sweep       many trainings from one description: a grid, a list or a sample
  compare     runs side by side: what differs, what it came to, and whether that is chance
  find        a learning rate, or the largest batches, for a config
  plot        pictures of position encodings, masks and attention
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
    "check": ("check", "check", CHECK),
    "sweep": ("sweep", "sweep", SWEEP),
    "compare": ("compare", "compare", COMPARE),
    "find": ("find", "find", FIND),
    "plot": ("plot", "plot", PLOT),
    "tokenizer": ("tokenizer", "tokenizer", TOKENIZER),
    "tasks": ("tasks", "tasks", TASKS),
    "new-task": ("new_task", "new_task", NEW_TASK),
}
"""verb -> (module of polyformer.cli, function in it, help)."""
