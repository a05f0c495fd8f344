package sensitivity

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"

	"onnxquant/onnxq"
	"onnxquant/spec"
)

// leastAtRunTime is the share of the damage that codes at run time must save to be named.
const leastAtRunTime = 0.2

// atRunTime measures what the outputs of held-out samples lose if activations are quantized at run time instead, as Dynamic does
// where nothing stays in float. given are the options of the user.
func (s *static) atRunTime(ctx context.Context, given onnxq.Options) error {
	f := s.fit
	if s.held == nil || f.HeldOut == 0 || s.held.engine.IsGo() || !runsHere(f.Options) || len(given.Ops) > 0 {
		return nil
	}
	o := withDynamic(given)
	o.Activations, o.Ranges, o.Algorithm, o.Codes = spec.Dynamic, nil, "", nil
	o.ActivationType, o.SymmetricActivations, o.CoarseActivations = "", false, false
	m, err := s.float(given)
	if err != nil {
		return err
	}
	defer m.Close()
	plan, err := m.Plan(o)
	if err != nil { // of settings that only static activations have
		return nil
	}
	if found, _ := dynamicParts(plan.Stages().Decisions); len(found) == 0 {
		return nil
	}
	all, best, err := s.weighSettings(ctx, m, given, o)
	if err != nil {
		return err
	}
	f.AtRunTime = &all[best].loss
	if plan, err = m.Plan(all[best].options); err != nil {
		return err
	}
	f.AtRunTimeBytes, err = plan.OutputSize("out.onnx")
	return err
}

// atRunTimeText says that codes at run time lose less, or nothing.
func (f *StaticFit) atRunTimeText() string {
	if x := f.AtRunTime; x == nil || f.Of == 0 || x.Damage >= f.Loss.Damage*(1-leastAtRunTime) {
		return ""
	}
	return fmt.Sprintf("--activations dynamic --calib loses less: damage %.2g, this %.2g; its file has %s; onnxquant bench compares their speed",
		f.AtRunTime.Damage, f.Loss.Damage, humanize.IBytes(uint64(f.AtRunTimeBytes)))
}
