package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
)

// place is where an object is.
type place struct{ scheme, bucket, key string }

// bucketName has no character that begins the options of a URL.
var bucketName = regexp.MustCompile(`^[A-Za-z0-9$][A-Za-z0-9._-]*$`)

func parse(name string) (p place, err error) {
	scheme, rest, ok := strings.Cut(name, "://")
	p.scheme = strings.ToLower(scheme)
	p.bucket, p.key, _ = strings.Cut(rest, "/")
	if !ok || !bucketName.MatchString(p.bucket) || p.key == "" {
		return p, errors.New("want SCHEME://BUCKET/KEY, such as s3://bucket/folder/model.onnx")
	}
	return p, nil
}

// openBucket opens a bucket with the credentials of the environment.
func openBucket(ctx context.Context, p place) (*blob.Bucket, error) {
	switch p.scheme {
	case "s3":
		return openS3(ctx, p.bucket)
	case "gs", "azblob":
		return blob.OpenBucket(ctx, p.scheme+"://"+p.bucket)
	}
	return nil, fmt.Errorf("%s:// is not known", p.scheme)
}

// openS3 opens a bucket of S3, or of a store that answers as S3 does. Such a store is named by AWS_ENDPOINT_URL.
func openS3(ctx context.Context, bucket string) (*blob.Bucket, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	other := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")) != ""
	if other && os.Getenv("AWS_REQUEST_CHECKSUM_CALCULATION") == "" {
		cfg.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired // not all know the others
		cfg.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}
	switch {
	case cfg.Region != "":
	case other:
		cfg.Region = "us-east-1" // they sign with it, and ignore it
	default:
		return nil, errors.New("the region is missing: set AWS_REGION")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return nil, fmt.Errorf("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE: %w", err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = other })
	return s3blob.OpenBucket(ctx, client, bucket, &s3blob.Options{RequestChecksumCalculation: cfg.RequestChecksumCalculation})
}
