package kernels

// WeightedSums are sums over the elements x of blocks side by side, as in a GridSearch, and their codes q: the integers nearest
// to x times an inverse, from Least to Greatest. Each element has a weight. Sums are in the order of elements.
type WeightedSums struct {
	Inverse, Least, Greatest [GridLanes]float32
	XQ, QQ                   [GridLanes]float64 // of weight·x·q and weight·q·q
}

// Find sets the sums. Elements are finite.
func (w *WeightedSums) Find(x []float32, weights []float64) {
	x = x[:len(weights)*GridLanes]
	for _, v := range w.Inverse {
		if len(x) == 0 || !IsFinite(v) { // times 0 it is NaN, whose limits differ in assembly
			w.addGo(x, weights)
			return
		}
	}
	w.add(x, weights)
}

func (w *WeightedSums) addGo(x []float32, weights []float64) {
	w.XQ, w.QQ = [GridLanes]float64{}, [GridLanes]float64{}
	for i, weight := range weights {
		for lane, v := range x[i*GridLanes:][:GridLanes] {
			q := float64(min(max(nearestInteger(v*w.Inverse[lane]), w.Least[lane]), w.Greatest[lane]))
			weighted := float64(weight * q)
			w.XQ[lane] += float64(weighted * float64(v))
			w.QQ[lane] += float64(weighted * q)
		}
	}
}
