package gomem_test

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/tack-memory/tack-memory/gomem"
	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

func (w *modelWorker) reserve(op modelOp) error {
	if len(w.tokens) >= 2 {
		for token := range w.tokens {
			w.device.Unreserve(token)
			delete(w.tokens, token)
		}
		return nil
	}
	n := modelSize(op.A)
	token, err := w.device.Reserve(n, gomem.AllocateOptions{Wait: w.wait()})
	if err != nil {
		return w.refused(err, int64(n))
	}
	w.tokens[token] = n
	return nil
}

// adopt allocates as a host framework does, and gives the memory to the device.
func (w *modelWorker) adopt(op modelOp) error {
	n := modelSize(op.A) + 1
	if overlapped := w.pick(op.B, false); overlapped != nil && op.C%4 == 0 {
		return w.adoptOverlapping(overlapped)
	}
	address, err := w.driver.Allocate(n)
	if errors.Is(err, gomem.ErrOutOfMemory) {
		if _, err := w.device.MakeRoom(n, gomem.AllocateOptions{Wait: w.wait()}); err != nil {
			return w.refused(err, int64(n))
		}
		address, err = w.driver.Allocate(n)
	}
	if err != nil {
		return nil // the host has no room, which is not our matter
	}
	b := &modelBuffer{data: make([]byte, n)}
	memory := w.driver.Bytes(address, n)
	for i := range b.data {
		b.data[i] = byte(op.C) + byte(i)
		memory[i] = b.data[i]
	}
	o := gomem.AdoptOptions{Wait: w.wait(), How: gomem.HowCUDAAsync, Stream: 7}
	for token := range w.tokens {
		o.Token = token
		delete(w.tokens, token)
		break
	}
	if b.index, err = w.device.Adopt(address, n, o); err != nil {
		if freeErr := w.driver.Free(gomem.Block{Address: address, Bytes: n}); freeErr != nil {
			return freeErr
		}
		return w.refused(err, int64(n))
	}
	w.born(b)
	return nil
}

func (w *modelWorker) adoptOverlapping(b *modelBuffer) error {
	r := w.device.Record(b.index)
	if w.state(b) != gomem.Resident || len(b.data) == 0 || !w.single {
		return nil
	}
	_, err := w.device.Adopt(r.Address+uint64(len(b.data))-1, 100, gomem.AdoptOptions{How: gomem.HowCUDA, Wait: w.wait()})
	var overlap *gomem.OverlapError
	if errors.As(err, &overlap) {
		if overlap.OtherAddress != r.Address || overlap.OtherBytes != r.Size {
			return fmt.Errorf("the wrong buffer is overlapped: %w", err)
		}
		return nil
	}
	if err == nil {
		return errors.New("memory of a buffer was adopted once more")
	}
	return w.refused(err, 100)
}

func (w *modelWorker) disown(random uint64) error {
	b := w.pick(random, false)
	if b == nil || len(b.data) == 0 {
		return nil
	}
	w.touched[b] = true
	address, err := w.device.Disown(b.index, w.wait())
	var busy *gomem.BusyError
	if errors.As(err, &busy) && w.held(b) {
		return nil
	}
	if err != nil {
		return w.refused(err, int64(len(b.data)), b)
	}
	if w.held(b) {
		return errors.New("disowned while held")
	}
	w.died(b)
	for _, method := range fakedriver.Methods {
		w.driver.Fail(method, 0, nil)
	}
	got := make([]byte, len(b.data))
	if err := w.driver.CopyOut(unsafe.Pointer(&got[0]), address, uint64(len(got))); err != nil {
		return err
	}
	if !bytes.Equal(got, b.data) {
		return errors.New("a disowned buffer has other contents")
	}
	return w.driver.Free(gomem.Block{Address: address, Bytes: uint64(len(b.data))})
}

func (w *modelWorker) makeRoom(op modelOp) error {
	n := modelSize(op.A) + 1
	freed, err := w.device.MakeRoom(n, gomem.AllocateOptions{Wait: w.wait()})
	if err != nil {
		return w.refused(err, 0)
	}
	if w.single && freed < n && w.c.Host < 0 && !w.c.Faults { // else host memory may have run out
		for _, b := range w.buffers {
			if w.state(b) == gomem.Resident && !w.keeps(b) {
				return fmt.Errorf("only %d of %d bytes were made free, and a buffer of %d could have gone", freed, n, len(b.data))
			}
		}
	}
	return nil
}

func (w *modelWorker) find(b *modelBuffer, offset, nbytes uint64) error {
	if !w.single || len(b.data) == 0 {
		return nil
	}
	r := w.device.Record(b.index)
	if offset == r.Size {
		offset--
		nbytes = min(nbytes, 1)
	}
	index, at, found := w.device.Find(r.Address+offset, nbytes)
	if w.state(b) == gomem.Resident {
		if !found || index != b.index || at != offset {
			return fmt.Errorf("buffer %d at %#x: offset %d is found %v in buffer %d at offset %d", b.index, r.Address, offset, found, index, at)
		}
	} else if found && index == b.index {
		return errors.New("a spilled buffer is found on the device")
	}
	return nil
}
