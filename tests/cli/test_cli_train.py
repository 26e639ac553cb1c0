"""attn train: a run that is killed (-9) and resumed ends in the same bits as one that was left alone; bad input is named."""
import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ATTN = sys.argv.pop(1)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT = os.path.join(ROOT, "docs", "operator.md")
SIZES = ["--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--batch", "2", "--vocab", "300",
         "--sample-every", "0", "--save-every", "5", "--eval-every", "20"]


def attn(*words):
    return subprocess.run([ATTN, "train", *words], capture_output=True, text=True)


def read(*parts):
    with open(os.path.join(*parts), "rb") as file:
        return file.read()


def attn_state(folder):
    """The metadata of a run's checkpoint."""
    whole = read(folder, "checkpoint.safetensors")
    return json.loads(whole[8:8 + int.from_bytes(whole[:8], "little")])["__metadata__"]


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = lambda name: os.path.join(self.folder.name, name)

    def train(self, name, steps, *more):
        return [TEXT, "-o", self.at(name), "--steps", str(steps), *SIZES, *more]

    def file(self, name, content):
        with open(self.at(name), "wb") as file:
            file.write(content)
        return self.at(name)

    def test_merges_are_those_of_counting_anew(self):
        letters = "".join("abcb"[(i * i // 7 + i // 5) % 4] for i in range(900)) + "aaaaaaa"
        self.assertEqual(attn(self.file("t", letters.encode()), "-o", self.at("m"), "--steps", "1", *SIZES).returncode, 0)
        tokenizer = json.loads(read(self.at("m"), "tokenizer.json"))["model"]
        word, ids, merges = list(letters), tokenizer["vocab"], []
        while len(merges) < len(tokenizer["merges"]):
            counts = {}
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
            best = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]))
            merges.append(" ".join(best))
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i:i + 2] = ["".join(best)]
                i += 1
        self.assertGreater(len(merges), 30)
        self.assertEqual(merges, [m if isinstance(m, str) else " ".join(m) for m in tokenizer["merges"]])

    def test_killed_and_resumed_equals_never_stopped(self):
        steps = 400
        whole = attn(*self.train("whole", steps, "--threads", "1", "--repeat", "0.25"))
        self.assertEqual(whole.returncode, 0, whole.stderr)
        killed = subprocess.Popen([ATTN, "train", *self.train("killed", steps, "--threads", "1", "--repeat", "0.25")],
                                  stdout=subprocess.DEVNULL)
        log = os.path.join(self.at("killed"), "log.jsonl")
        for _ in range(2000):
            if os.path.exists(log) and read(log).count(b"\n") >= 12:
                break
            time.sleep(0.005)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        self.file("killed/checkpoint.safetensors.123-1a2b-0.tmp", b"half written")
        kept = self.file("killed/other.123-1a2b-0.tmp", b"not ours")
        with open(log) as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            second = attn("--resume", "-o", self.at("killed"))
            self.assertEqual(second.returncode, 1)
            self.assertIn("another process", second.stderr)
        resumed = attn("--resume", "-o", self.at("killed"), "--threads", "2")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual([n for n in os.listdir(self.at("killed")) if n.endswith(".tmp")], [os.path.basename(kept)])
        self.assertEqual(read(self.at("whole"), "model.safetensors"), read(self.at("killed"), "model.safetensors"))
        lines = [json.loads(line) for line in read(log).splitlines()]
        self.assertEqual([line["step"] for line in lines], list(range(1, steps + 1)))
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])

    def test_what_it_leaves_can_be_used(self):
        done = attn(*self.train("m", 6))
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("config.json", "tokenizer.json", "loss.svg", "loss.png", "checkpoint.safetensors"):
            self.assertGreater(os.path.getsize(os.path.join(self.at("m"), name)), 100, name)
        config = json.loads(read(self.at("m"), "tokenizer_config.json"))
        self.assertEqual(config["tokenizer_class"], "PreTrainedTokenizerFast")
        self.assertEqual(config["eos_token"], "<|endoftext|>")
        used = subprocess.run([ATTN, "generate", "--model", self.at("m"), "-n", "4", "the row"], capture_output=True)
        self.assertEqual(used.returncode, 0, used.stderr)

    def test_samples_are_the_models_of_their_step(self):
        often, seldom = (attn(*self.train(n, 40, "--lr", "0.05", "--sample-every", "20", "--save-every", e)).stdout.split("sample ")
                         for n, e in (("o", "20"), ("s", "0")))
        self.assertEqual(len(often), 3)
        self.assertEqual(often[1].split("step 40/40")[0], seldom[1].split("step 40/40")[0])

    def test_a_masked_model_fills_masks(self):
        done = attn(*self.train("b", 6, "--arch", "bert", "--sample-every", "6"))
        self.assertEqual(done.returncode, 0, done.stderr)
        # The passage is drawn from the text, lines and all.
        self.assertRegex(done.stdout, r"(?s)sample after step 6 \(\{guess/hidden token\}\):\n.*\{.*/.*\}.*\n6 steps")
        run = lambda *words: subprocess.run([ATTN, "run", "--model", self.at("b"), *words], capture_output=True, text=True)
        masks = json.loads(run("--json", "the [MASK] of the [MASK]").stdout)["masks"]
        self.assertEqual(len(masks), 2)
        for mask in masks:
            self.assertEqual(mask["probabilities"], sorted(mask["probabilities"], reverse=True))
            self.assertEqual(len(mask["ids"]), 5)
        self.assertIn("In the place of token", run("the [MASK]").stdout)
        refused = run("nothing to fill")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("[MASK]", refused.stderr)

    def test_pairs_of_windows_and_steps_that_are_done(self):
        sizes = ["--arch", "encdec", "--chars", *SIZES]
        unix = attn(self.file("u.tsv", b"ab\tba\n\ncd\tdc\n"), "-o", self.at("u"), "--steps", "2", *sizes)
        self.assertEqual(unix.returncode, 0, unix.stderr)
        windows = attn(self.file("w.tsv", b"ab\tba\r\n\r\ncd\tdc\r\n"), "-o", self.at("w"), "--steps", "2", *sizes)
        self.assertEqual(windows.returncode, 0, windows.stderr)
        bad = attn(self.at("u.tsv"), "--val", self.file("bad.tsv", b"a\tb\na\xff\tb\n"), "-o", self.at("x"), *sizes)
        self.assertIn("bad.tsv, line 2", bad.stderr)
        before, model = read(self.at("u"), "checkpoint.safetensors"), read(self.at("u"), "model.safetensors")
        self.file("u/model.safetensors", b"as if killed before it was written")
        done = attn("--resume", "-o", self.at("u"), "--steps", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all 2 steps are done", done.stdout)
        self.assertEqual(before, read(self.at("u"), "checkpoint.safetensors"))
        self.assertEqual(model, read(self.at("u"), "model.safetensors"))

    def test_dry_run_writes_nothing(self):
        done = attn("--dry-run", *self.train("none", 6))
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("parameters", "memory", "time"):
            self.assertIn(word, done.stdout)
        self.assertFalse(os.path.exists(self.at("none")))

    def test_bad_input_is_named(self):
        for words, said in ((["-o", self.at("x")], "no text"), ([TEXT], "-o DIR"),
                            (["/nonexistent", "-o", self.at("x")], "/nonexistent"),
                            ([*self.train("x", 5), "--heads", "3"], "--width is 16; it must be a multiple of --heads 3"),
                            ([*self.train("x", 5), "--pre-norm"], "--pre-norm"),
                            ([*self.train("x", 5), self.file("bad.txt", b"a\xff")], "bad.txt: byte 1"),
                            ([*self.train("x", 5), "--val", self.at("bad.txt")], "bad.txt"),
                            (["--resume", "-o", self.at("y")], "checkpoint"),
                            ([*self.train("x", 5), "--arch", "gpt9"], "gpt9"),
                            ([*self.train("x", 5), "--arch", "bert", "--repeat", "0.2"], "--repeat"),
                            ([*self.train("x", 5), "--repeat", "2"], "--repeat"),
                            ([*self.train("x", 5), "--context", "16777216"], "16777216"),
                            ([*self.train("x", 5), "--prompt", b"\xff"], "--prompt is not UTF-8"),
                            (["--resume", "-o", self.at("y"), "--batch", "1"], "--batch"),
                            ([TEXT, "--resume", "-o", self.at("y")], TEXT)):
            done = attn(*words)
            self.assertIn(done.returncode, (1, 2), words)
            self.assertIn(said, done.stderr)
            self.assertFalse(os.path.exists(self.at("x")), words)

    def test_numbers_are_trained_both_ways_and_the_model_answers(self):
        done = attn("--task", "numbers", "-o", self.at("n"), "--steps", "3", "--width", "8", "--ff", "16", "--batch", "4",
                    "--eval-batches", "1", "--sample-every", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of the held-out pairs exact", done.stdout)
        pairs = [line.split("\t") for line in read(self.at("n"), "numbers.tsv").decode().splitlines()]
        held_out = [line.split("\t") for line in read(self.at("n"), "held-out.tsv").decode().splitlines()]
        self.assertEqual(len({number for _, number in pairs + held_out}), len(pairs) + len(held_out))
        self.assertIn(["twelve", "12"], pairs + held_out)
        small = "zero one two three four five six seven eight nine".split()
        for words, number in held_out[:200]:
            said = words.replace("-", " ").split()
            self.assertEqual(said[-1] in small[1:], number[-1] != "0" and not (len(number) > 1 and number[-2] == "1"), words)
            self.assertEqual("thousand" in said, len(number) > 3)
        model = read(self.at("n"), "post-norm", "model.safetensors")
        again = attn("--task", "numbers", "-o", self.at("n"), "--steps", "4", "--eval-batches", "1")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotEqual(model, read(self.at("n"), "post-norm", "model.safetensors"))
        log = read(self.at("n"), "post-norm", "log.jsonl").splitlines()
        self.assertEqual([json.loads(line)["step"] for line in log], [1, 2, 3, 4])
        for word in ("post-norm with warm-up", "pre-norm"):
            self.assertIn(word.split()[0], read(self.at("n"), "curves.svg").decode())
        for norm in ("post-norm", "pre-norm"):
            folder = os.path.join(self.at("n"), norm)
            told = subprocess.run([ATTN, "run", "--json", "--model", folder, "forty-two"], capture_output=True, text=True)
            self.assertEqual(told.returncode, 0, told.stderr)
            told = json.loads(told.stdout)
            made = subprocess.run([ATTN, "generate", "--json", "-n", "24", "--model", folder, "forty-two"],
                                  capture_output=True, text=True)
            self.assertEqual(json.loads(made.stdout)["results"][0]["generated_ids"], told["generated_ids"])
            self.assertEqual(len(told["cross_attention"]), len(told["generated_ids"]))
            for row in told["cross_attention"]:
                self.assertAlmostEqual(sum(row), 1, places=5)
            shown = subprocess.run([ATTN, "run", "--model", folder, "--layer", "0", "--head", "1", "forty-two"],
                                   capture_output=True, text=True)
            self.assertIn("layer 0, head 1", shown.stdout)
        os.remove(os.path.join(self.at("n"), "numbers.tsv"))  # the ids are kept
        on = attn("--resume", "-o", os.path.join(self.at("n"), "pre-norm"), "--steps", "5")
        self.assertEqual(on.returncode, 0, on.stderr)
        ids = os.path.join(self.at("n"), "pre-norm", "tokens.bin")
        for place in (9, 40, 100, -1):
            changed = bytearray(read(ids))
            changed[place] ^= 1
            self.file(ids, bytes(changed))
            refused = attn("--resume", "-o", os.path.join(self.at("n"), "pre-norm"), "--steps", "6")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("does not hold the pairs", refused.stderr)
            changed[place] ^= 1
            self.file(ids, bytes(changed))

    def test_training_goes_on_from_a_model(self):
        for arch, more in (("llama", ["--kv-heads", "1"]), ("gpt2", [])):
            first = attn(*self.train(arch, 12, "--arch", arch, *more))
            self.assertEqual(first.returncode, 0, first.stderr)
            before = [json.loads(line) for line in read(self.at(arch), "log.jsonl").splitlines()][-1]["validation"]
            on = attn(TEXT, "--from", self.at(arch), "-o", self.at(arch + "2"), "--steps", "2", "--lr", "0", "--context", "16",
                      "--batch", "2", "--sample-every", "0")
            self.assertEqual(on.returncode, 0, on.stderr)
            after = [json.loads(line) for line in read(self.at(arch + "2"), "log.jsonl").splitlines()][-1]["validation"]
            self.assertEqual(before, after)
            self.assertEqual(read(self.at(arch), "model.safetensors"), read(self.at(arch + "2"), "model.safetensors"))
            resumed = attn("--resume", "-o", self.at(arch + "2"), "--steps", "3")
            self.assertEqual(resumed.returncode, 0, resumed.stderr)
        planned = attn(TEXT, "--from", self.at("gpt2"), "--dry-run", "--context", "16", "--batch", "2")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertIn("gpt2, 1 layers, 2 heads, width 16", planned.stdout)
        self.assertIn("nothing was written", planned.stdout)
        for words, said in ((["--width", "8"], "--width"), (["--dry-run", "--context", "999"], "16 positions"),
                            (["--context", "999"], "16 positions")):
            done = attn(TEXT, "--from", self.at("gpt2"), "-o", self.at("x"), *words)
            self.assertIn(done.returncode, (1, 2))
            self.assertIn(said, done.stderr)
            self.assertFalse(os.path.exists(self.at("x")), words)

    def test_what_would_not_do_is_said(self):
        with open(self.at("empty"), "wb"):
            pass
        held_out = attn(*self.train("m", 2), "--val", self.at("empty"))
        self.assertEqual(held_out.returncode, 1)
        self.assertIn("--val", held_out.stderr)
        self.assertFalse(os.path.exists(self.at("m")))
        large = attn(TEXT, "-o", self.at("m"), "--width", "65536", "--heads", "4", "--steps", "1")
        self.assertEqual(large.returncode, 1)
        self.assertRegex(large.stderr, r"need [0-9.]+ GB of memory .* this machine has")
        with open(self.at("short.txt"), "w") as file:
            file.write("a few words, a few words, and no more than a few. " * 20)
        few = attn(self.at("short.txt"), "-o", self.at("m"), "--steps", "1", *SIZES, "--vocab", "4000")
        self.assertEqual(few.returncode, 0, few.stderr)
        self.assertIn("--vocab is 4000; the texts give", few.stderr)
        os.remove(os.path.join(self.at("m"), "checkpoint.safetensors"))
        again = attn(*self.train("m", 1))
        self.assertEqual(again.returncode, 1)
        self.assertIn("holds a model already", again.stderr)

    def test_texts_that_cannot_be_trained_on_leave_nothing(self):
        for name, text in (("empty", b""), ("short", b"a"), ("bytes", b"\x80\xff" * 500)):
            with open(self.at(name), "wb") as file:
                file.write(text)
            done = attn(self.at(name), "-o", self.at("m"), "--steps", "2", *SIZES)
            self.assertEqual(done.returncode, 1, name)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertFalse(os.path.exists(self.at("m")), name)

    def test_a_file_size_limit_is_an_error_and_leaves_nothing(self):
        for most in (4096, 36000): # the vocabulary does not fit; the first checkpoint does not
            limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            done = subprocess.run([ATTN, "train", *self.train("m", 2)], capture_output=True, text=True, preexec_fn=limit)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("File too large", done.stderr)
            self.assertFalse(os.path.exists(self.at("m")), most)

    def test_a_lost_or_cut_log_does_not_stop_a_resumed_run(self):
        self.assertEqual(attn(*self.train("m", 4)).returncode, 0)
        log = os.path.join(self.at("m"), "log.jsonl")
        os.truncate(log, read(log).index(b"\n") + 1)
        self.assertEqual(attn("--resume", "-o", self.at("m"), "--step", "6").returncode, 0)
        self.assertEqual([json.loads(line)["step"] for line in read(log).splitlines()], [1, 5, 6])
        os.remove(log)
        self.assertEqual(attn("--resume", "-o", self.at("m"), "--steps", "7").returncode, 0)
        self.assertEqual([json.loads(line)["step"] for line in read(log).splitlines()], [7])

    def test_settings_in_a_checkpoint_that_cannot_be_are_refused(self):
        self.assertEqual(attn(*self.train("m", 2)).returncode, 0)
        path = os.path.join(self.at("m"), "checkpoint.safetensors")
        whole = read(path)
        end = 8 + int.from_bytes(whole[:8], "little")
        for key, value in (("texts", [1]), ("log_bytes", -5), ("steps", -1), ("accumulate", 1 << 40), ("batch", "2")):
            header = json.loads(whole[8:end])
            settings = json.loads(header["__metadata__"]["attn_train_user_data"])
            settings[key] = value
            header["__metadata__"]["attn_train_user_data"] = json.dumps(settings)
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            with open(path, "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text + whole[end:])
            done = attn("--resume", "-o", self.at("m"))
            self.assertEqual(done.returncode, 1, key)
            self.assertIn("not written by attn train", done.stderr)


    def interrupted(self, name, at, steps, *more):
        """A run on one thread whose validations take long, sent SIGINT within the one after step `at` or near it."""
        held_out = self.file("held-out", read(TEXT) * 12)
        words = self.train(name, steps, "--threads", "1", "--save-every", "1000", "--val", held_out, "--layers", "2", "--width", "64",
                           "--eval-batches", "4", *more)
        run = subprocess.Popen([ATTN, "train", *words], stdout=subprocess.PIPE, text=True)
        log = os.path.join(self.at(name), "log.jsonl")
        for _ in range(4000):
            if os.path.exists(log) and read(log).count(b"\n") >= at - 1:
                break
            time.sleep(0.005)
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        said = run.communicate()[0]
        self.assertEqual(run.returncode, 0, said)
        return said, lambda: [json.loads(line) for line in read(log).splitlines()]

    def saved_step(self, name):
        return int(attn_state(self.at(name))["attn_train_step"])

    def test_a_signal_within_a_validation_saves(self):
        said, log = self.interrupted("v", 20, 1000, "--eval-batches", "1000000")
        lines = log()
        self.assertEqual(self.saved_step("v"), lines[-1]["step"])
        self.assertIn("stopped after step %d and saved" % lines[-1]["step"], said)

    def test_a_signal_within_the_last_validation_leaves_it_to_be_made_up_for(self):
        said, log = self.interrupted("last", 20, 20)
        self.assertEqual(self.saved_step("last"), 20)
        if "validation_all" in log()[-1]:
            self.skipTest("the validation was over before the signal came")
        self.assertIn("the validation was cut short", said)
        self.assertNotIn("20 steps in", said)
        resumed = attn("--resume", "-o", self.at("last"))
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("20 steps in", resumed.stdout)
        made_up = log()[-1]
        self.assertEqual(made_up["step"], 20)
        self.assertRegex(resumed.stdout, "validation loss %.4f" % made_up["validation_all"])
        self.assertIn("all 20 steps are done", attn("--resume", "-o", self.at("last")).stdout)
        self.assertIn("whole validation %.4f" % made_up["validation_all"], read(self.at("last"), "loss.svg").decode())

    def test_the_whole_validation_is_no_point_of_the_curve(self):
        self.assertEqual(attn(*self.train("c", 40, "--eval-batches", "1", "--lr", "0")).returncode, 0)
        lines = [json.loads(line) for line in read(self.at("c"), "log.jsonl").splitlines()]
        self.assertEqual(lines[19]["validation"], lines[39]["validation"]) # the same batches by the same weights
        self.assertNotIn("validation_all", lines[19])
        self.assertNotEqual(lines[39]["validation"], lines[39]["validation_all"])

    def test_diverged_weights_do_not_take_the_place_of_good_ones(self):
        wild = attn(*self.train("d", 200, "--arch", "llama", "--lr", "3e4", "--decay", "1000", "--clip", "0", "--save-every", "1"))
        self.assertEqual(wild.returncode, 1)
        self.assertIn("first not finite: ", wild.stderr)
        told = re.search("attn train (--resume -o .*) --lr ", wild.stderr).group(1).split()
        self.assertIn("--clip 1", wild.stderr)
        calm = attn(*told, "--lr", "1e-6", "--clip", "1", "--steps", str(self.saved_step("d") + 1))
        self.assertEqual(calm.returncode, 0, calm.stderr)
        line = json.loads(read(self.at("d"), "log.jsonl").splitlines()[-1])
        self.assertLessEqual(line["lr"], 1e-6)
        state = json.loads(attn_state(self.at("d"))["attn_train_options"])
        self.assertEqual(state["clip"], 1)

    def test_files_of_another_run_are_refused(self):
        for name, text in (("a", b"one two three four five six. " * 60), ("b", b"seven eight nine ten eleven. " * 60)):
            done = attn(self.file(name + ".txt", text), "-o", self.at(name), "--steps", "2", *SIZES, "--vocab", "270")
            self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("tokens.bin", "tokenizer.json"):
            ours = read(self.at("a"), name)
            self.file("a/" + name, read(self.at("b"), name))
            refused = attn("--resume", "-o", self.at("a"), "--steps", "3")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("a/%s is not the one" % name, refused.stderr)
            self.file("a/" + name, ours)
        self.assertEqual(attn("--resume", "-o", self.at("a"), "--steps", "3").returncode, 0)

    def test_rates_and_lines_that_cannot_be_are_refused(self):
        done = attn(*self.train("x", 5), "--lr", "1e-4", "--min-lr", "1e-3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--min-lr", done.stderr)
        self.assertEqual(attn(*self.train("r", 2)).returncode, 0)
        self.assertIn("--min-lr", attn("--resume", "-o", self.at("r"), "--steps", "3", "--min-lr", "5").stderr)
        done = attn(self.file("t.tsv", b"a\tb\nc\td\te\n"), "-o", self.at("x"), "--arch", "encdec", "--chars", *SIZES)
        self.assertEqual(done.returncode, 1)
        self.assertIn("t.tsv, line 2: more than one tab", done.stderr)


if __name__ == "__main__":
    unittest.main()
