package envoylimit

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
)

// method describes a unary method whose request may hold text that is not UTF-8. Protobuf refuses such
// a message, so gRPC would answer INTERNAL, and a proxy that is open would let the request in: a client
// that writes one such byte into its path could choose that. The message is received as one without
// fields, which keeps all bytes as they came, for any codec of protobuf.
func method[T any, Q interface {
	*T
	proto.Message
}, A any](service, name string, answer func(*Server, context.Context, Q) (A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, receive func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		var raw emptypb.Empty
		if err := receive(&raw); err != nil {
			return nil, err
		}
		in := Q(new(T))
		if err := unmarshal(raw.ProtoReflect().GetUnknown(), in); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "read the request: %v", err)
		}
		handle := func(ctx context.Context, in any) (any, error) { return answer(srv.(*Server), ctx, in.(Q)) }
		if intercept == nil {
			return handle(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + service + "/" + name}, handle)
	}}
}

// unmarshal is proto.Unmarshal that keeps text which is not UTF-8 as it is.
func unmarshal(b []byte, into proto.Message) error {
	if proto.Unmarshal(b, into) == nil {
		return nil
	}
	proto.Reset(into)
	return merge(b, into.ProtoReflect(), maxDepth)
}

// maxDepth bounds messages within messages.
const maxDepth = 100

var errTooDeep = errors.New("messages within messages are too deep")

// merge reads fields with text one by one, and leaves the others to proto.Unmarshal.
func merge(b []byte, into protoreflect.Message, depth int) error {
	if depth == 0 {
		return errTooDeep
	}
	var others []byte
	err := eachField(b, func(num protowire.Number, whole, value []byte) error {
		field := into.Descriptor().Fields().ByNumber(num)
		if value == nil || field == nil || !mayHoldText(field) {
			others = append(others, whole...)
			return nil
		}
		return put(into, field, value, depth)
	})
	if err != nil {
		return err
	}
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(others, into.Interface())
}

// eachField calls f for each field of a message. value is nil for fields that have no length.
func eachField(b []byte, f func(num protowire.Number, whole, value []byte) error) error {
	for len(b) > 0 {
		num, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(num, kind, b[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[tag:])
		}
		if err := f(num, b[:tag+size], value); err != nil {
			return err
		}
		b = b[tag+size:]
	}
	return nil
}

func mayHoldText(field protoreflect.FieldDescriptor) bool {
	if field.IsMap() {
		return field.MapKey().Kind() == protoreflect.StringKind && mayHoldText(field.MapValue())
	}
	return field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.MessageKind
}

// put sets a field that may hold text, or adds to it.
func put(into protoreflect.Message, field protoreflect.FieldDescriptor, value []byte, depth int) error {
	isText := field.Kind() == protoreflect.StringKind
	switch {
	case field.IsMap():
		return putEntry(into.Mutable(field).Map(), field.MapValue().Kind() == protoreflect.StringKind, value, depth)
	case field.IsList() && isText:
		into.Mutable(field).List().Append(protoreflect.ValueOfString(string(value)))
	case field.IsList():
		return merge(value, into.Mutable(field).List().AppendMutable().Message(), depth-1)
	case isText:
		into.Set(field, protoreflect.ValueOfString(string(value)))
	default:
		return merge(value, into.Mutable(field).Message(), depth-1)
	}
	return nil
}

// putEntry adds an entry to a map: a message with the fields 1, the key, and 2, the value.
func putEntry(into protoreflect.Map, isText bool, entry []byte, depth int) error {
	key, value := "", into.NewValue()
	err := eachField(entry, func(num protowire.Number, _, field []byte) error {
		switch {
		case field == nil:
		case num == 1:
			key = string(field)
		case num == 2 && isText:
			value = protoreflect.ValueOfString(string(field))
		case num == 2:
			return merge(field, value.Message(), depth-1)
		}
		return nil
	})
	if err == nil {
		into.Set(protoreflect.ValueOfString(key).MapKey(), value)
	}
	return err
}
