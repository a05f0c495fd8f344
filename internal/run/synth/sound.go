package synth

import (
	"math"
	"math/cmplx"
	"math/rand/v2"

	"gonum.org/v1/gonum/dsp/fourier"
)

// rate is the usual number of samples a second of models for speech.
const rate = 16000

// speech is a voice: harmonics of a gliding pitch, whose strengths follow the resonances of vowels, in
// syllables with pauses between them. It is a function of time, so that runs can follow each other.
type speech struct{ seed uint64 }

// vowels are resonances, in Hz.
var vowels = [][3]float64{{730, 1090, 2440}, {270, 2290, 3010}, {300, 870, 2240}, {530, 1840, 2480}, {570, 840, 2410}, {660, 1720, 2410}}

// A phrase has syllables, then a pause; in seconds.
const (
	syllable = 0.22
	phrase   = 2.2
	pause    = 0.5
)

// pitch returns the pitch at time t, in Hz, and its phase, in turns.
func (s speech) pitch(t float64) (hz, turns float64) {
	const base, depth, speed = 130.0, 0.18, 0.6
	a := 2 * math.Pi * speed
	return base * (1 + depth*math.Sin(a*t)), base * (t - depth*math.Cos(a*t)/a)
}

// loudness returns the envelope at time t, from 0 to 1, and the vowel.
func (s speech) loudness(t float64) (loud float64, vowel [3]float64) {
	k, within := math.Floor(t/syllable), math.Mod(t, syllable)/syllable
	vowel = vowels[rand.New(rand.NewPCG(s.seed, uint64(k))).IntN(len(vowels))]
	if math.Mod(t, phrase) > phrase-pause {
		return 0, vowel
	}
	return math.Pow(math.Sin(math.Pi*min(max(1.25*within, 0), 1)), 0.7), vowel
}

// gain returns how strong a frequency is in a vowel.
func gain(hz float64, vowel [3]float64) float64 {
	sum := 0.02
	for i, f := range vowel {
		d := (hz - f) / (90 + 0.06*f)
		sum += math.Exp(-d*d/2) / float64(i+1)
	}
	return sum / (1 + hz/2500)
}

// wave returns n samples from a time on, with a peak of about a third.
func (s speech) wave(rng *rand.Rand, from, n int) []float64 {
	const harmonics = 28
	const step = 64 // samples between which strengths hardly change
	x := make([]float64, n)
	var loud float64
	var strength [harmonics + 1]float64
	for i := range x {
		t := float64(from+i) / rate
		hz, turns := s.pitch(t)
		if i%step == 0 {
			var vowel [3]float64
			loud, vowel = s.loudness(t)
			for k := 1; k <= harmonics; k++ {
				strength[k] = gain(float64(k)*hz, vowel)
			}
		}
		sum := 0.0
		if loud > 0 {
			sin, cos := math.Sincos(2 * math.Pi * turns)
			a, b := 0.0, 1.0 // sine and cosine of k turns
			for k := 1; k <= harmonics; k++ {
				a, b = a*cos+b*sin, b*cos-a*sin
				sum += strength[k] * a
			}
		}
		x[i] = 0.4*loud*sum + (0.002+0.01*loud)*rng.NormFloat64()
	}
	return x
}

// lead is when the first run begins, so that it does not begin with silence.
const lead = rate / 20

// waves makes sound for each row of the input. Runs follow each other.
func (in *input) waves(rng *rand.Rand, seed uint64, i int) []float64 {
	n := int(in.dims[len(in.dims)-1])
	scale := 1.0
	if !in.typ.Float() {
		scale = 32767
	}
	var x []float64
	for row := range int(product(in.dims[:len(in.dims)-1])) {
		for _, v := range (speech{seed + uint64(row)}).wave(rng, lead+i*n, n) {
			x = append(x, scale*v)
		}
	}
	return x
}

// spectra makes the magnitudes of Fourier transforms of sound, a row for each hop.
func (in *input) spectra(rng *rand.Rand, seed uint64, i int) []float64 {
	bins := int(in.dims[len(in.dims)-1])
	n := 2 * (bins - 1)
	hop := n / 4
	rows := int(product(in.dims)) / bins
	sound := speech{seed}.wave(rng, lead+i*rows*hop, rows*hop+n)
	transform := fourier.NewFFT(n)
	x := make([]float64, 0, rows*bins)
	for row := range rows {
		for _, v := range transform.Coefficients(nil, sound[row*hop:row*hop+n]) {
			x = append(x, cmplx.Abs(v))
		}
	}
	return x
}

// mel makes logarithms of strengths of sound by mel frequency, a frame for each 10 ms. Their mean is about 0 and their
// deviation about 1.
func (in *input) mel(rng *rand.Rand, seed uint64, i int) []float64 {
	bands, length := int(in.dims[in.axis]), int(in.dims[3-in.axis])
	x := make([]float64, 0, product(in.dims))
	for row := range int(in.dims[0]) {
		s := speech{seed + uint64(row)}
		frame := make([][]float64, length)
		for t := range frame {
			at := 0.05 + 0.01*float64(i*length+t)
			loud, vowel := s.loudness(at)
			hz, _ := s.pitch(at)
			frame[t] = make([]float64, bands)
			for b := range frame[t] {
				f := 700 * (math.Exp(float64(b+1)/float64(bands+1)*math.Log(1+8000.0/700)) - 1)
				ripple := 1 + 0.6*math.Cos(2*math.Pi*f/hz)*math.Exp(-f/1500)
				v := math.Log10(loud*gain(f, vowel)*ripple + 0.003*(1+0.3*rng.Float64()))
				frame[t][b] = v + 1.4
			}
		}
		if in.axis == 2 {
			for _, f := range frame {
				x = append(x, f...)
			}
			continue
		}
		for b := range bands {
			for _, f := range frame {
				x = append(x, f[b])
			}
		}
	}
	return x
}
