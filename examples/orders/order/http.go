package order

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"
)

// maxBody bounds a request, in bytes.
const maxBody = 64 << 10

// Handler serves
//
//	POST   /orders        {"customer": "ann", "cents": 1250}   201 and the order
//	DELETE /orders/{id}                                        204
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.post)
	mux.HandleFunc("DELETE /orders/{id}", s.delete)
	return mux
}

func (s *Service) post(w http.ResponseWriter, r *http.Request) {
	var wanted Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&wanted); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o, err := s.Place(r.Context(), wanted.Customer, wanted.Cents)
	if err != nil {
		s.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(o) // the order is placed, whether the client hears it or not
}

func (s *Service) delete(w http.ResponseWriter, r *http.Request) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.Cancel(r.Context(), id); err != nil {
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrInvalid):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case errors.Is(err, ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		s.Log.Error("request failed", "err", err)
		http.Error(w, "the order service has a problem", http.StatusInternalServerError)
	}
}
