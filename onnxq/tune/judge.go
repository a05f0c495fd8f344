package tune

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"time"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/observe"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
)

// outputs judges a model by its outputs on samples, against those of the float model. The models run as users run them.
type outputs struct {
	engine  *observe.Engine
	names   []string
	loss    func(want, got [][]*execute.Tensor) onnxq.OutputLoss
	choice  share
	final   share
	samples Samples
	key     string
	seconds float64 // of a run of the float model

	doubt float64 // standard deviation of the logarithm of a loss, between samples that choose and others

	labelled bool // the score is the accuracy
	output   int  // that has the classes
}

// share has some samples, the outputs of the float model for them, and their labels, if they have any.
type share struct {
	inputs, want [][]*execute.Tensor
	labels       [][]int64
}

// mostKept bounds the samples and outputs that are kept.
const mostKept = 512 << 20

// Variances of the logarithm of a loss on one sample, and of a divergence on one row: few rows have most of it.
// Both are guesses.
const each, eachRow = 0.3, 4.0

// fewest is the number of samples that can be divided.
const fewest = 8

// newOutputs divides the samples: the first half calibrates, for the command's --samples are the first ones; the others
// choose and judge in turn.
func newOutputs(ctx context.Context, in string, m *onnxq.Model, o *Options) (*outputs, error) {
	n := o.Samples
	if n == 0 {
		n = DefaultSamples
	}
	data := calibrate.New(in, calibrate.Options{Data: o.Data, Samples: n, Library: o.Library})
	if err := data.Open(ctx); err != nil {
		return nil, err
	}
	j := &outputs{engine: data.Engine()}
	if !j.engine.IsGo() {
		runner, err := ort.Find(ctx, o.Library)
		if err != nil {
			return nil, err
		}
		j.engine = observe.With(runner.AsUsers())
	}
	if n = data.Len(); n < fewest {
		return nil, fmt.Errorf("the data have %d samples; a search needs at least %d: some calibrate, some choose, some judge", n, fewest)
	}
	j.samples.Calibration = n / 2
	var err error
	if j.key, err = data.Key(ctx); err != nil {
		return nil, err
	}
	j.loss, j.names = sensitivity.Losses(m)
	if len(j.names) == 0 {
		return nil, fmt.Errorf("%s: no output of a floating-point type to compare; a program can print a score", in)
	}
	if err := j.run(ctx, in, data, o); err != nil || o.Labels == "" {
		return j, err
	}
	j.labelled = true
	j.output, err = j.choice.classified()
	return j, err
}

// run runs the float model on the samples that do not calibrate.
func (j *outputs) run(ctx context.Context, in string, data *calibrate.Data, o *Options) error {
	session, err := j.engine.Open(ctx, in)
	if err != nil {
		return err
	}
	defer session.Close()
	kept, number := 0, -1
	label, stop := iter.Pull2(o.labels(data.Samples().Labels))
	defer stop()
	labels := sha256.New()
	for inputs, err := range data.Samples().All() {
		var classes []int64
		if err == nil {
			classes, err, _ = label()
			fmt.Fprintln(labels, classes)
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if number++; number < j.samples.Calibration {
			continue
		}
		start := time.Now()
		want, err := session.Run(inputs, j.names...)
		took := time.Since(start).Seconds()
		if j.seconds = min(took, j.seconds); j.seconds == 0 {
			j.seconds = took
		}
		if err != nil {
			return data.Samples().Failed(ctx, number, inputs, err)
		}
		if one := [][]*execute.Tensor{want}; j.loss(one, one).Damage != 0 {
			return data.Samples().NotFinite(number, inputs)
		}
		for _, list := range [][]*execute.Tensor{inputs, want} {
			for _, t := range list {
				kept += len(t.Data)
			}
		}
		if kept > mostKept && len(j.final.inputs) > 1 {
			break
		}
		to := &j.choice
		if (number-j.samples.Calibration)%2 == 1 {
			to = &j.final
		}
		to.inputs, to.want, to.labels = append(to.inputs, inputs), append(to.want, want), append(to.labels, classes)
	}
	j.key += hex.EncodeToString(labels.Sum(nil))
	j.samples.Choice, j.samples.Final = len(j.choice.inputs), len(j.final.inputs)
	choice, final := j.loss(j.choice.want, j.choice.want), j.loss(j.final.want, j.final.want)
	j.samples.Rows, j.samples.FinalRows = choice.Rows, final.Rows
	if j.doubt = math.Sqrt(each / float64(j.samples.Choice)); choice.KL != nil {
		j.doubt = math.Sqrt(eachRow / float64(max(choice.Rows, 1)))
	}
	return nil
}

// Judge implements Judge.
func (j *outputs) Judge(ctx context.Context, path string, final bool) (q Quality, err error) {
	of := &j.choice
	if final {
		of = &j.final
	}
	session, err := j.engine.Open(ctx, path)
	if err != nil {
		return q, err
	}
	defer session.Close()
	got := make([][]*execute.Tensor, len(of.inputs))
	for i, inputs := range of.inputs {
		if err := context.Cause(ctx); err != nil {
			return q, err
		}
		if got[i], err = session.Run(inputs, j.names...); err != nil {
			return q, err
		}
	}
	loss := j.loss(of.want, got)
	q.Loss = &loss
	if j.labelled {
		right, err := of.accuracy(got, j.output)
		if err != nil {
			return q, err
		}
		q.Score = &right
	}
	return q, nil
}

// both judges by a score and by the outputs.
type both struct {
	score   Judge
	outputs *outputs
}

func (j both) Judge(ctx context.Context, path string, final bool) (Quality, error) {
	q, err := j.score.Judge(ctx, path, final)
	if err != nil || final {
		return q, err
	}
	loss, err := j.outputs.Judge(ctx, path, false)
	q.Loss = loss.Loss
	return q, err
}
