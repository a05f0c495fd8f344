package sensitivity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/convert"
	"onnxquant/internal/journal"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
)

// journalVersion increases when the same options are measured in another way.
const journalVersion = 3

// keptLoss is an OutputLoss in a journal, which tells 0 from nil.
type keptLoss struct {
	Damage         float64
	KL, SQNR, Drop []float64
	Poor           string
	Failed         string // why the runtime could not run the model, or ""
}

func keepLoss(x onnxq.OutputLoss) keptLoss {
	list := func(v *float64) []float64 {
		if v == nil {
			return nil
		}
		return []float64{*v}
	}
	return keptLoss{Damage: x.Damage, KL: list(x.KL), SQNR: list(x.SQNR), Drop: list(x.Drop), Poor: x.Poor}
}

func (k keptLoss) loss() onnxq.OutputLoss {
	pointer := func(v []float64) *float64 {
		if len(v) == 0 {
			return nil
		}
		return &v[0]
	}
	return onnxq.OutputLoss{Damage: k.Damage, KL: pointer(k.KL), SQNR: pointer(k.SQNR), Drop: pointer(k.Drop), Poor: k.Poor}
}

// journalOptions are those for the journal of a search.
func journalOptions(folder string, o *onnxq.Options) journal.Options {
	notify := o.Notify
	if notify == nil {
		notify = func(string) {}
	}
	return journal.Options{
		Resume: o.Resume, Temporary: samplesPrefix,
		Waits: func() {
			notify(fmt.Sprintf("another process calibrates in %s; waiting for its end", filepath.Base(folder)))
		},
		Resumed: func(kept int) {
			notify(fmt.Sprintf("going on behind %s of the interrupted run; the float model runs on the samples again", english.Plural(kept, "measurement", "")))
		},
		Begins: func() {
			notify("nothing to resume: no calibration of this model with these data and flags was interrupted; calibration starts from the beginning")
		},
	}
}

// journalKey is a hash of the version of the program, the model, the data and the options of a search.
func journalKey(ctx context.Context, version string, m *onnxq.Model, data *calibrate.Data, o onnxq.Options, limits Limits) (string, error) {
	h := sha256.New()
	sum, err := m.Graph().File.SHA256()
	if err != nil {
		return "", err
	}
	key, err := data.Key(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(h, journalVersion, version, sum, key, data.Len(), data.Engine().Name(), limits.given())
	if err := convert.HashContents(ctx, m.Graph().File, h); err != nil {
		return "", err
	}
	if err := json.NewEncoder(h).Encode([]any{o.Precision.Entries(), limits}); err != nil {
		return "", err
	}
	o.Precision, o.Provenance, o.Codes, o.Resume = nil, nil, nil, false // hashed, or without effect
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if kind := v.Field(i).Kind(); kind == reflect.Func || kind == reflect.Interface {
			continue
		}
		raw, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %s\n", v.Type().Field(i).Name, raw)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
